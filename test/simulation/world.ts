/**
 * A whole service in memory. Its decisions are the service's own code: group commit, withdrawals,
 * stores, claims, verdicts, reconcile. Only what lies beyond the drivers is a model, so that days
 * of outages last milliseconds and a seed repeats a history.
 */
import { AccountStore } from '../../internal/account/account-store.ts';
import { ACCOUNTS, TEST_ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { LedgerStore } from '../../internal/account/mail-ledger.ts';
import { PARTNER_HOLDS, PartnerHolds } from '../../internal/partner/flags.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { later, type Clock } from '../../internal/platform/process/clock.ts';
import { DatabaseClock } from '../../internal/platform/stores/database-clock.ts';
import { isOpen, type Actor } from '../../internal/submission/states.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { EarlierRequests } from '../../internal/submission/earlier-requests.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import {
  ingestMetrics,
  processorMetrics,
  type IngestMetrics,
  type ProcessorMetrics,
} from '../../internal/telemetry/metrics.ts';
import { MemoryCollection, type Document } from './memory-collection.ts';
import { SimQueue } from './queue.ts';
import { retention as kept } from '../support/records.ts';
import { newRandom, type Random } from '../support/random.ts';
import { SimRelay, type Temper } from './relay.ts';
import { Scheduler, type SimProcess } from './scheduler.ts';
import type { Ended } from './told.ts';
import { newWire } from './wire.ts';
import { databaseOf, driverOf, type Wire } from './driver.ts';

/** What the indexes of accounts keep unique. */
export const uniqueAccountKeys = ['emailNormalized', 'ein', 'requestId'];

/** What was sent, and the answer. */
export interface Sent {
  readonly requestId: string;
  readonly body: Buffer;
  readonly email: string;
  readonly ein: string;
  readonly valid: boolean;
  readonly key: string | null;
  readonly ingest: SimProcess;
  readonly at: number;
  answer: number | undefined;
  answeredAt: number | undefined;
  answeredId: string | undefined;
}

/** A time in which a process or its connection to MongoDB was disturbed. */
interface Disturbance {
  readonly kind: 'killed' | 'frozen' | 'cutOff';
  /** Undefined stands for every process. */
  readonly process: SimProcess | undefined;
  readonly from: number;
  until: number;
}

export const retention = { ...kept, malformedDays: 30, refusedDays: 7 };
/** The share of failing calls that are writes without a majority. */
const NOT_REPLICATED = 0.25;
export const silent = createLogger('simulation', 'silent');
export const noMetric = { inc: () => {}, set: () => {}, observe: () => {} };
export const noMetrics = Object.fromEntries(
  Object.keys({ ...ingestMetrics, ...processorMetrics }).map((name) => [name, noMetric]),
) as unknown as IngestMetrics & ProcessorMetrics;

export class World {
  readonly random: Random;
  readonly scheduler: Scheduler;
  readonly requests = new MemoryCollection(['idempotencyDigest']);
  readonly accounts = new MemoryCollection(uniqueAccountKeys);
  readonly holds = new MemoryCollection();
  readonly mongo = {
    /** Calls are lost, or arrive late, by chance. */
    away: false,
    stalled: false,
    shaky: 0,
    caller: undefined as Actor | undefined,
  };
  readonly redis = { away: false, lossy: 0, repeating: 0.05 };
  readonly smtp = {
    away: false,
    /** The share of sessions that are cut. */
    shaky: 0,
    refuses: false,
    /** The server answers 4xx to each mail. */
    turnsAway: false,
    /** Takes every mail and answers only at this time. */
    hangsUntil: 0,
  };
  readonly queue: SimQueue;
  readonly relay: SimRelay;
  readonly sent: Sent[] = [];
  readonly disturbances: Disturbance[] = [];
  /** Times of operators' wishes for a mail, by account id. */
  readonly mailWishes = new Map<string, number[]>();
  /** Times at which an operator reopened a request, by request id. */
  readonly reopenings = new Map<string, number[]>();
  readonly bounces = new Map<string, number>();
  /** When a worker first claimed each request. */
  readonly claimedAt = new Map<string, number>();
  /** Since when each request's record is stored. */
  readonly storedAt = new Map<string, number>();
  /** When each request's account was created. */
  readonly accountsAt = new Map<string, number>();
  /** Whether operators stopped a partner or changed accounts: then places may change. */
  placesMayChange = false;
  readonly ended: Ended[] = [];
  /** Orders to reopen, from the first try to the last. */
  readonly reopens: { readonly requestId: string; until: number }[] = [];
  readonly untrue: string[] = [];
  /** The time of an erasure, and the mails that may have been out by then. */
  readonly erasures = new Map<string, { readonly at: number; readonly possibleMails: number }>();
  readonly erasedAccounts = new Map<string, Account>();
  /** With the request that named the person. */
  readonly toErase = new Map<string, string | undefined>();
  readonly corrected = new Set<string>();
  readonly erasedPeople = new Set<string>();
  /** Called whenever a `dueAt` may have changed. */
  readonly onDue: (() => void)[] = [];

  /** Without a queue Redis is away for good. */
  constructor(seed: number, temperOf: (email: string) => Temper, hasQueue: boolean) {
    this.random = newRandom(seed);
    this.scheduler = new Scheduler(this.random);
    this.queue = new SimQueue(this.scheduler, this.redis, hasQueue);
    this.relay = new SimRelay(this.scheduler, this.smtp, temperOf);
  }

  newProcess(name: string, skewMs: number): SimProcess {
    return { name, alive: true, closing: false, frozenUntil: 0, skewMs };
  }

  /** The stores of a process, on a client of its own. */
  connect(process: SimProcess, caller: Actor, socketTimeoutMs?: number) {
    const wire: Wire = newWire(this.scheduler, this.mongo, caller, socketTimeoutMs);
    const clock = this.#clockOf(process);
    const options = {
      replicates: () =>
        !this.mongo.stalled && !this.random.chance(this.mongo.shaky * NOT_REPLICATED),
    };
    const findsNothing = (filter: Document): boolean => this.#findsNothingDue(filter);
    const collections = {
      [SUBMISSIONS]: driverOf(this.requests, wire, { findsNothing, ...options }),
      [ACCOUNTS]: driverOf(this.accounts, wire, options),
      [TEST_ACCOUNTS]: driverOf(new MemoryCollection(), wire, options),
      [PARTNER_HOLDS]: driverOf(this.holds, wire, options),
    };
    const hello = () => wire(() => ({ localTime: this.scheduler.date() }));
    const db = databaseOf(collections, hello);
    return {
      clock,
      db,
      store: new WorkerMoves({ db, retention, clock }),
      dueWork: new DueWork({ db, clock }),
      holds: new PartnerHolds({ db, clock }),
      accounts: new AccountStore({ db, clock }),
      earlier: (onHold: () => readonly string[]) => new EarlierRequests({ db, onHold }),
      ledger: new LedgerStore({ db, clock }),
      ping: () => wire(() => true),
    };
  }

  /** The measurement is wrong by up to half a second. */
  #clockOf(process: SimProcess): Clock {
    const local = this.scheduler.clockOf(process);
    const clock = new DatabaseClock(local);
    const localTime = later(this.scheduler.date(), process.skewMs % 500);
    void clock.measure({ command: () => Promise.resolve({ localTime }) });
    return clock;
  }

  records(): readonly SubmissionRecord[] {
    return this.requests.all() as unknown as readonly SubmissionRecord[];
  }

  allAccounts(): readonly Account[] {
    const all = this.accounts.all() as unknown as readonly Account[];
    return all.filter(({ erasedAt }) => erasedAt === undefined);
  }

  earliestDueAt(): number | undefined {
    const due = this.records().flatMap((record) =>
      isOpen(record.state) && record.dueAt !== undefined ? [record.dueAt.getTime()] : [],
    );
    return due.length === 0 ? undefined : Math.min(...due);
  }

  /** Skips hours without due records. */
  #findsNothingDue({ dueAt }: Document): boolean {
    if (this.mongo.away || this.mongo.shaky > 0 || typeof dueAt !== 'object') return false;
    const { $lte: upTo } = dueAt as { readonly $lte?: Date };
    return upTo !== undefined && upTo.getTime() < (this.earliestDueAt() ?? Infinity);
  }

  /** MongoDB's server dies, and another one takes over with what a majority has. */
  crashMongo(): void {
    this.requests.rollBack();
    this.accounts.rollBack();
    for (const id of this.storedAt.keys())
      if (this.requests.get(id) === undefined) this.storedAt.delete(id);
    for (const tell of this.onDue) tell();
  }

  disturb(kind: Disturbance['kind'], process: SimProcess | undefined, forMs: number): void {
    const { now } = this.scheduler;
    this.disturbances.push({ kind, process, from: now, until: now + forMs });
  }
}
