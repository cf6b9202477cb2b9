/**
 * What the answers to many e-mails say of the relay.
 *
 * - **Alike**: it refuses different recipients for good with the same words, and takes hardly any
 *   other e-mail. Such words are about us, however they read, so none of these refusals is final.
 *   The processors share what they saw of the last day in Redis, and each keeps its own for what
 *   Redis loses. Redis is asked of refusals for good only.
 * - **Not taken**: it takes none of the e-mails of this process.
 */
import { createHash } from 'node:crypto';
import type { Account } from '../account/account.ts';
import { handOversOf } from '../account/mail-ledger.ts';
import { domainOf } from '../application/fields.ts';
import { redisName, type KnownInstallation } from '../installation/installation.ts';
import { DAY_MS, type Clock } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { Fault } from '../platform/process/fault.ts';
import type { Logger } from '../platform/process/log.ts';
import type { RedisClient } from '../platform/stores/redis.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { wordsAlike, type HandOver } from './relay-answers.ts';

/** Of one server's unknown mailboxes no number says anything, so their domains must differ, too. */
export const ALIKE_RECIPIENTS = 5;
export const ALIKE_DOMAINS = 3;
/** Of other e-mails, since the first of these refusals. */
export const TAKEN_AT_MOST = 1;
const SIGHTS_KEPT = 200;
const SIGHTS_KEPT_MS = DAY_MS;
const KEY = 'refused-mails';
const REDIS_TIMEOUT_MS = 500;

/** Unless others are taken; an e-mail that waits is tried again within 20 minutes. */
const ALIKE_SHOWN_MS = 1_200_000;
/** The warning needs as many: fewer may be the fault of their recipients' servers. */
export const NOT_TAKEN_LEAST = 3;
const NOT_TAKEN_MOST = 1_000;
/** An e-mail that waits is tried again within 75 minutes. */
const NOT_TAKEN_KEPT_MS = 4_500_000;

/** One refusal for good. Without `said`, an e-mail that was refused so before. */
export interface Sight {
  /** Milliseconds since 1970. */
  readonly at: number;
  /** Other e-mails that the process handed over since its sight before, and when the last. */
  readonly taken: number;
  readonly tookAt: number;
  readonly said?: RefusedMail | undefined;
}
interface RefusedMail {
  readonly words: string;
  readonly recipient: string;
  readonly domain: string;
}

/** Whether the words are about us. Newest first. */
export function areAlike(sights: readonly Sight[], words: string): boolean {
  const recipients = new Set<string>();
  const domains = new Set<string>();
  const newer: Sight[] = [];
  for (const sight of sights) {
    const { at, taken, said } = sight;
    // What a process handed over until then, it may tell long after.
    const since = newer.filter(({ tookAt }) => tookAt > at);
    const others = since.reduce((sum, one) => sum + one.taken, 0);
    if (others > TAKEN_AT_MOST) return false;
    if (said?.words === words) {
      recipients.add(said.recipient);
      domains.add(said.domain);
      if (recipients.size >= ALIKE_RECIPIENTS && domains.size >= ALIKE_DOMAINS) return true;
    }
    if (taken > 0) newer.push(sight);
  }
  return false;
}

interface TrustTools {
  /** `host:port` of the relay. */
  readonly at: string;
  readonly redis: RedisClient;
  readonly installation: KnownInstallation;
  readonly metrics: Pick<ProcessorMetrics, 'mailsRefusedAlike' | 'mailsNotTaken'>;
  readonly clock: Pick<Clock, 'monotonicMs' | 'now'>;
  readonly log: Logger;
}

export class RelayTrust {
  readonly #tools: TrustTools;
  #taken = 0;
  #tookAt = 0;
  /** Newest first. */
  readonly #own: string[] = [];
  #alikeAtMs = -Infinity;
  /** When each account's e-mail was last not taken, since the relay took one. */
  readonly #notTaken = new Map<string, number>();

  constructor(tools: TrustTools) {
    this.#tools = tools;
  }

  /**
   * Returns the hand-over as it counts. Hand-overs of claims up to `since` were before an operator's
   * order. Never rejects.
   */
  async judge(
    handOver: HandOver,
    account: Pick<Account, '_id' | 'email' | 'mail'>,
    since = -1,
  ): Promise<HandOver> {
    if (handOver.result === 'accepted') {
      this.#taken += 1;
      this.#tookAt = this.#tools.clock.now().getTime();
      if (this.#taken > TAKEN_AT_MOST) this.#alikeAtMs = -Infinity;
      this.#notTaken.clear();
      this.#tools.metrics.mailsNotTaken.set(0);
      return handOver;
    }
    // An outage is told by itself, and an e-mail without an answer may be taken.
    if (['aborted', 'ambiguous'].includes(handOver.result) || 'outage' in handOver) return handOver;
    if (handOver.result !== 'refused' || handOver.failure !== 'permanent') {
      this.#noteNotTaken(account._id);
      return handOver;
    }
    const words = hashOf(wordsAlike(handOver, account.email));
    const isRepeat = handOversOf(account.mail).some(
      ({ claim, result, code, answer = '' }) =>
        claim > since &&
        result === 'refused' &&
        code === handOver.code &&
        hashOf(wordsAlike({ answer, code }, account.email)) === words,
    );
    const [recipient, domain] = [account._id, domainOf(account.email).toLowerCase()].map(hashOf);
    const said = isRepeat ? undefined : { words, recipient: recipient!, domain: domain! };
    if (!areAlike(await this.#sights(said), words)) return handOver;
    const { clock, metrics, log } = this.#tools;
    if (!this.#isAlike) log.error('the relay refuses different applicants with the same words');
    this.#alikeAtMs = clock.monotonicMs();
    metrics.mailsRefusedAlike.inc();
    this.#noteNotTaken(account._id);
    const { why: _why, ...refusal } = handOver;
    return { ...refusal, failure: 'ours', alike: true };
  }

  /** For `/readyz`. */
  warnings(): Fault[] {
    const { at, clock } = this.#tools;
    const untilMs = clock.monotonicMs() - NOT_TAKEN_KEPT_MS;
    for (const [id, atMs] of this.#notTaken) if (atMs < untilMs) this.#notTaken.delete(id);
    const faultOf = (code: string, words: string): Fault => {
      return { code, of: 'Relay', words: `Relay at ${at}: ${words}` };
    };
    const alike = 'it refuses different applicants with the same words, so that none is given up';
    return [
      ...(this.#isAlike ? [faultOf('refuses_alike', alike)] : []),
      ...(this.#notTaken.size < NOT_TAKEN_LEAST
        ? []
        : [faultOf('takes_none', 'it takes no e-mail')]),
    ];
  }

  get #isAlike(): boolean {
    return this.#tools.clock.monotonicMs() - this.#alikeAtMs < ALIKE_SHOWN_MS;
  }

  #noteNotTaken(accountId: string): void {
    const { clock, metrics } = this.#tools;
    if (this.#notTaken.size < NOT_TAKEN_MOST || this.#notTaken.has(accountId))
      this.#notTaken.set(accountId, clock.monotonicMs());
    metrics.mailsNotTaken.set(this.#notTaken.size);
  }

  /**
   * Adds a sight; returns those of all processors, with those that Redis may have lost. What was
   * refused so before says nothing more, and may not displace what was.
   */
  async #sights(said: RefusedMail | undefined): Promise<Sight[]> {
    const { redis, installation, clock } = this.#tools;
    const at = clock.now().getTime();
    const told = said === undefined ? [] : [said.words, said.recipient, said.domain];
    const line = [at, this.#taken, this.#tookAt, ...told].join(' ');
    const isNew = said !== undefined || this.#taken > 0;
    this.#taken = 0;
    if (isNew) this.#own.unshift(line);
    this.#own.length = Math.min(this.#own.length, SIGHTS_KEPT);
    const { id } = installation;
    const shared =
      id === undefined ? [] : await share(redis, redisName(id, KEY), isNew ? line : undefined);
    const all = [...new Set([...this.#own, ...shared])].map(sightOf);
    return all.toSorted((one, other) => other.at - one.at);
  }
}

/** Adds the line, if any. Empty while Redis is away. */
async function share(redis: RedisClient, key: string, line?: string): Promise<string[]> {
  if (redis.status !== 'ready') return [];
  const commands = redis.multi();
  if (line !== undefined) commands.lpush(key, line).ltrim(key, 0, SIGHTS_KEPT - 1);
  const done = commands.pexpire(key, SIGHTS_KEPT_MS).lrange(key, 0, -1).exec();
  const answers = await withDeadline(done, REDIS_TIMEOUT_MS, 'refused-mails').catch(() => null);
  const all = answers?.at(-1)?.[1];
  return Array.isArray(all) ? all.map(String) : [];
}

function sightOf(line: string): Sight {
  const [at, taken, tookAt, words, recipient, domain] = line.split(' ');
  const said =
    words === undefined || recipient === undefined || domain === undefined
      ? undefined
      : { words, recipient, domain };
  return { at: Number(at), taken: Number(taken), tookAt: Number(tookAt), said };
}

/** Too short to be sought for: it only tells apart. */
const hashOf = (text: string): string =>
  createHash('sha256').update(text).digest('base64url').slice(0, 6);
