/**
 * The load and the audit of `make chaos` on the cluster: partners at the Service, stores behind
 * port-forwards.
 */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { openStates } from '../../internal/submission/states.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { audit, type AuditResult } from '../faults/audit.ts';
import type { Allowance } from '../faults/fault.ts';
import type { SentMail } from '../faults/facts.ts';
import { Ledger, numberOf, type LedgerEntry } from '../faults/ledger.ts';
import { startLoad } from '../faults/load.ts';
import { Planner } from '../faults/planner.ts';
import { newRandom } from '../support/random.ts';
import { eventually } from '../support/wait.ts';
import { FOLDER } from './cluster.ts';
import type { World } from './world.ts';

const SEED = 20_261_121;
/**
 * Enough that something is under way at any instant, and little enough to leave two cores to the
 * cluster.
 */
export const PER_SECOND = 30;
/** Numbers of requests and applicants of one load; no run comes near. */
const RANGE = 1_000_000;
/** The default of `ingest.acceptTimeoutMs`. */
const ACCEPT_TIMEOUT_MS = 2_000;
/** A little longer than the load's client is patient. */
const ANSWERS_WITHIN_MS = 80_000;
const MAILS_EVERY_MS = 2_000;
/** A claim of 45 s that runs out, then reconcile, twice over. */
const SETTLE_TIMEOUT_MS = 180_000;

export interface Outcome {
  readonly requests: number;
  /** Without an answer, or with one that the contract does not have for such a request. */
  readonly broken: readonly string[];
  /** 500 well before the time-out for recording: somebody gave up early. */
  readonly early500: readonly string[];
}

export interface LoadRun {
  /** The key that the load sends; a test may change it at any time. */
  key: string;
  /** What is sent from now on belongs to this phase. */
  phase(name: string): void;
  /** What became of the requests of a phase, once none is under way any more. */
  outcome(phase: string): Promise<Outcome>;
  /**
   * Ends the load, waits until every record is final, and audits with what the faults of the run
   * allow.
   */
  finish(allows?: readonly Allowance[]): Promise<AuditResult>;
  /** Ingest pods are killed during this phase; that excuses something (test/faults/facts.ts). */
  ingestKilled(phase: string): void;
  processorStopped(): void;
  stop(): Promise<void>;
}

/** Starts sending; `part` is a number of its own for each run on the same install. */
export async function startRun(world: World, name: string, part: number): Promise<LoadRun> {
  const random = newRandom(SEED + part);
  const ledger = new Ledger(join(FOLDER, `ledger-${name}.jsonl`), part * RANGE);
  const inactive = newApiKey();
  let [phase, key] = ['before', newApiKey()];
  await world.applyPartner(`load-${name}`, [key]);
  await world.applyPartner(`dormant-${name}`, [inactive], 'inactive');
  await Promise.all([world.answers(key, 202), world.answers(inactive, 403)]);

  const killedIngest = new Set<string>();
  const processorStops: number[] = [];
  const mails = new MailCollector(world);
  const load = startLoad({
    planner: new Planner(random, part * RANGE),
    random,
    ledger,
    keys: {
      get good() {
        return key;
      },
      inactive,
      unknown: newApiKey(),
    },
    // Which pod a request reaches nobody outside knows; so it is only the phase that can excuse
    // something.
    targets: () => world.urls.map((url) => ({ instance: phase, url })),
    phase: () => phase,
    perSecond: PER_SECOND,
    connection: world.connection,
  });
  let stopped = false;
  const stop = async (): Promise<void> => {
    if (stopped) return;
    stopped = true;
    await load.stop();
    mails.stop();
    ledger.close();
  };
  return {
    get key() {
      return key;
    },
    set key(next) {
      key = next;
    },
    phase: (next) => (phase = next),
    ingestKilled: (during) => void killedIngest.add(during),
    processorStopped: () => void processorStops.push(Date.now()),
    async outcome(of) {
      const entries = ledger.entries.filter((entry) => entry.phase === of && entry.kind !== 'cut');
      const pending = (): boolean =>
        entries.some(({ answer, failure }) => answer === undefined && failure === undefined);
      await eventually('the last answers', async () => !pending(), ANSWERS_WITHIN_MS);
      const wrong = entries.filter((entry) => !isAsUsual(entry));
      const failed = wrong.filter(({ answer }) => answer?.status === 500);
      // Later ones are the contract's answer to a MongoDB that is slow.
      const early = failed.filter(
        ({ answer, sentAt }) => (answer?.at ?? 0) - sentAt < ACCEPT_TIMEOUT_MS,
      );
      return {
        requests: entries.length,
        broken: wrong.filter((entry) => !failed.includes(entry)).map(wordsOf),
        early500: early.map(wordsOf),
      };
    },
    stop,
    async finish(allows = []) {
      await load.stop();
      await settle(world);
      await mails.collect();
      const facts = {
        killedIngest,
        processorStops,
        mailStops: [],
        ambiguous: new Map(),
        refused: new Set<string>(),
        reopened: new Set<string>(),
      };
      const stored = await storedOf(world, part);
      const sent = mails.all.filter(({ to }) => isOf(part, applicantNumber(to)));
      await stop();
      return audit({
        ledger: ledger.entries,
        ...stored,
        mails: sent,
        facts,
        allows: new Set(allows),
      });
    },
  };
}

/** Whether it was answered as it is while nothing is away. */
function isAsUsual({ kind, answer }: LedgerEntry): boolean {
  const wanted = {
    valid: [202],
    invalid: [202],
    malformed: [400],
    unauthorized: [401, 403],
    cut: [],
  }[kind];
  return answer !== undefined && (wanted as number[]).includes(answer.status);
}

function wordsOf({ n, kind, answer, failure, sentAt }: LedgerEntry): string {
  const took = (answer?.at ?? failure?.at ?? Date.now()) - sentAt;
  return `request ${n} (${kind}) at ${new Date(sentAt).toISOString()}: ${answer?.status ?? failure?.error} after ${took} ms`;
}

/** Until no record has work ahead and no withdrawal is pending. */
async function settle(world: World): Promise<void> {
  await eventually(
    'every record to be final and no withdrawal to be pending',
    async () => {
      const open = await world.withDb((db) =>
        db
          .collection<SubmissionRecord>(SUBMISSIONS)
          .countDocuments({ state: { $in: [...openStates] } }),
      );
      if (open > 0) throw new Error(`${open} records are open`);
      return (await world.metric('ingest', 'partner_ingest_withdrawals_pending')) === 0;
    },
    SETTLE_TIMEOUT_MS,
  );
}

/**
 * Records and accounts of this part; withdrawals of requests whose sender is not known belong to
 * every part.
 */
function storedOf(
  world: World,
  part: number,
): Promise<{ records: SubmissionRecord[]; accounts: Account[] }> {
  return world.withDb(async (db) => {
    const all = await db.collection<SubmissionRecord>(SUBMISSIONS).find().toArray();
    const records = all.filter(({ userAgent, state }) =>
      userAgent === undefined ? state === 'withdrawn' : isOf(part, numberOf(userAgent)),
    );
    const ours = new Set(records.map(({ _id }) => _id));
    const accounts = (await db.collection<Account>(ACCOUNTS).find().toArray()).filter(
      ({ requestId, emailNormalized }) =>
        ours.has(requestId) || isOf(part, applicantNumber(emailNormalized)),
    );
    return { records, accounts };
  });
}

function isOf(part: number, n: number | undefined): boolean {
  return n !== undefined && Math.floor(n / RANGE) === part;
}

/** Of an address that the planner made. */
function applicantNumber(email: string): number | undefined {
  const digits = /^applicant-(\d+)@example\.com$/.exec(email)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** Takes over every now and then what MailDev holds: it keeps the newest 500 only. */
class MailCollector {
  readonly all: SentMail[] = [];
  readonly #world: World;
  readonly #stop = new AbortController();
  readonly #seen = new Set<string>();

  constructor(world: World) {
    this.#world = world;
    void this.#collectForEver();
  }

  stop(): void {
    this.#stop.abort();
  }

  /** Rejects where mails were forgotten before we came: then nobody can count them. */
  async collect(): Promise<void> {
    const listed = await this.#world.mails();
    const known = listed.some(({ id }) => this.#seen.has(id));
    if (!known && this.#seen.size > 0)
      throw new Error('mails were forgotten before they were seen');
    for (const { id, envelope, time, headers } of listed.filter(
      (mail) => !this.#seen.has(mail.id),
    )) {
      this.#seen.add(id);
      for (const { address } of envelope.to)
        this.all.push({
          to: address.toLowerCase(),
          at: Date.parse(time),
          messageId: headers['message-id'] ?? '',
        });
    }
  }

  async #collectForEver(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      // What fails now is tried again, and at the end it has to succeed.
      await this.collect().catch(() => undefined);
      await sleep(MAILS_EVERY_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}
