/** The load and the audit of `make chaos` on a cluster. */
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { openStates } from '../../internal/submission/states.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { audit, type AuditResult } from '../faults/audit.ts';
import type { Allowance } from '../faults/fault.ts';
import type { SentMail } from '../faults/facts.ts';
import { numberOf, type LedgerEntry } from '../faults/ledger.ts';
import { startLoad } from '../faults/load.ts';
import { newRandom } from '../support/random.ts';
import { eventually } from '../support/wait.ts';
import { FOLDER } from './cluster.ts';
import type { World } from './world.ts';

const SEED = 20_261_121;
/** A rate that keeps work under way and leaves processor time to the cluster. */
export const PER_SECOND = 30;
/** Each load has a range of this size for its requests and applicants. */
const RANGE = 1_000_000;
/** The default of `ingest.acceptTimeoutMs`. */
const ACCEPT_TIMEOUT_MS = 2_000;
/** Longer than the client of the load waits for an answer. */
const ANSWERS_WITHIN_MS = 80_000;
const MAILS_EVERY_MS = 2_000;
/** Twice the 45 s of a claim and the time of reconcile. */
const SETTLE_TIMEOUT_MS = 180_000;

export interface Outcome {
  readonly requests: number;
  /** Requests without an answer, or with one that the contract does not allow. */
  readonly broken: readonly string[];
  /** Requests answered 500 well before the accept time-out. */
  readonly early500: readonly string[];
}

export interface LoadRun {
  /** The key of the load; tests may change it. */
  key: string;
  phase(name: string): void;
  /** Resolves once no request of the phase is under way. */
  outcome(phase: string): Promise<Outcome>;
  /** Ends the load, waits until every record is final, and runs the audit. */
  finish(allows?: readonly Allowance[]): Promise<AuditResult>;
  /** Says that in this phase an ingest was killed just now (test/faults/facts.ts). */
  ingestKilled(phase: string): void;
  processorStopped(): void;
  stop(): Promise<void>;
}

/** Starts sending; `part` numbers the runs on one install. */
export async function startRun(world: World, name: string, part: number): Promise<LoadRun> {
  const inactive = newApiKey();
  let [phase, key] = ['before', newApiKey()];
  await world.applyPartner(`load-${name}`, [key]);
  await world.applyPartner(`dormant-${name}`, [inactive], 'inactive');
  await Promise.all([world.answers(key, 202), world.answers(inactive, 403)]);

  const killedIngest = new Map<string, number>();
  const processorStops: number[] = [];
  const mails = new MailCollector(world);
  const load = startLoad({
    file: join(FOLDER, `ledger-${name}.jsonl`),
    random: newRandom(SEED + part),
    first: part * RANGE,
    keyed: false,
    keys: {
      get good() {
        return key;
      },
      inactive,
      unknown: newApiKey(),
    },
    // The pod of a request is unknown, so findings are allowed by phase.
    targets: () => world.urls.map((url) => ({ instance: phase, url })),
    phase: () => phase,
    perSecond: PER_SECOND,
    connection: world.connection,
  });
  const { ledger } = load;
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> => {
    mails.stop();
    return (stopped ??= load.stop());
  };
  return {
    get key() {
      return key;
    },
    set key(next) {
      key = next;
    },
    phase: (next) => (phase = next),
    ingestKilled: (during) => void killedIngest.set(during, Date.now()),
    processorStopped: () => void processorStops.push(Date.now()),
    async outcome(of) {
      const entries = ledger.entries.filter((entry) => entry.phase === of && entry.kind !== 'cut');
      const pending = (): boolean =>
        entries.some(({ answer, failure }) => answer === undefined && failure === undefined);
      await eventually('the last answers', async () => !pending(), ANSWERS_WITHIN_MS);
      const wrong = entries.filter((entry) => !isAsUsual(entry));
      const failed = wrong.filter(({ answer }) => answer?.status === 500);
      // Later 500s are the contract's answer to a slow MongoDB.
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
      stopped ??= load.stop();
      await stopped;
      await settle(world);
      await mails.collect();
      const facts = {
        killedIngest,
        processorStops,
        databaseBack: [],
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

/** Says whether the request got the answer that it gets without faults. */
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

/** Waits until no record is open and no withdrawal is pending. */
async function settle(world: World): Promise<void> {
  await eventually(
    'every record to be final and no withdrawal to be pending',
    async () => {
      const open = await world.withDb((db) =>
        db
          .collection<SubmissionRecord>(SUBMISSIONS)
          // An ending of a test key waits for an hour.
          .countDocuments({ state: { $in: [...openStates] }, test: { $exists: false } }),
      );
      if (open > 0) throw new Error(`${open} records are open`);
      return (await world.metric('ingest', 'partner_ingest_withdrawals_pending')) === 0;
    },
    SETTLE_TIMEOUT_MS,
  );
}

/** Selects the records and accounts of this part, and withdrawals of unknown senders. */
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

function applicantNumber(email: string): number | undefined {
  const digits = /^applicant-(\d+)@d\d\.example\.com$/.exec(email)?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** Collects MailDev's mails regularly, because it keeps only the newest 500. */
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

  /** Rejects if mails were dropped before they were collected. */
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
      // A failure is retried, and the last try must succeed.
      await this.collect().catch(() => undefined);
      await sleep(MAILS_EVERY_MS, undefined, { signal }).catch(() => undefined);
    }
  }
}
