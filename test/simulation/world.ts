/**
 * A whole service in memory: ingests, processors, an operator, MongoDB, Redis, the mail server and
 * time.
 *
 * The decisions are the service's own code: group commit, withdrawals, the stores, claims,
 * attempts, verdicts, outage gates, reconcile. Only what lies beyond the drivers is a model. That
 * is the one exception to "no mocks of our stores": it makes three days of outages and crashes last
 * milliseconds, and the same seed always tells the same story.
 */
import { AccountStore } from '../../internal/account/account-store.ts';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { LedgerStore } from '../../internal/mail/ledger-store.ts';
import { PARTNER_HOLDS, PartnerHolds } from '../../internal/partner/flags.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { later, type Clock } from '../../internal/platform/clock.ts';
import { DatabaseClock } from '../../internal/platform/database-clock.ts';
import { isOpen, type Actor } from '../../internal/submission/states.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import {
  ingestMetrics,
  processorMetrics,
  type IngestMetrics,
  type ProcessorMetrics,
} from '../../internal/telemetry/metrics.ts';
import { MemoryCollection, type Document } from './memory-collection.ts';
import { SimQueue, type RedisWeather } from './queue.ts';
import { retention as kept } from '../support/records.ts';
import { newRandom, type Random } from '../support/random.ts';
import { SimRelay, type RelayWeather, type Temper } from './relay.ts';
import { Scheduler, type SimProcess } from './scheduler.ts';
import type { Ended } from './told.ts';
import { newWire, type MongoWeather } from './wire.ts';
import { databaseOf, driverOf, type Tamper, type Wire, type WriteConcern } from './driver.ts';

/** Parts that a test may replace by broken ones, to see that the simulation notices. */
export interface Parts {
  readonly Store: typeof WorkerMoves;
  readonly Ledger: typeof LedgerStore;
  readonly tamper: Tamper;
  readonly uniqueAccountKeys: readonly string[];
  readonly reconciles: boolean;
  /** Without it, Redis is away for good. */
  readonly hasQueue: boolean;
  readonly withdraws: boolean;
  /** Whether ingest takes a write without a trustworthy answer for stored. */
  readonly takesDoubtForStored: boolean;
  /** Whether a process goes by the clock of its own machine. */
  readonly localClocks: boolean;
  /** What every write asks for; undefined: what the service asks for. */
  readonly concern: WriteConcern | undefined;
}

export const ourParts: Parts = {
  Store: WorkerMoves,
  Ledger: LedgerStore,
  tamper: (sent) => sent,
  uniqueAccountKeys: ['emailNormalized', 'ein', 'requestId'],
  reconciles: true,
  hasQueue: true,
  withdraws: true,
  takesDoubtForStored: false,
  localClocks: false,
  concern: undefined,
};

/** What a partner was told, and what was sent. */
export interface Sent {
  readonly requestId: string;
  readonly body: Buffer;
  readonly email: string;
  readonly ein: string;
  readonly valid: boolean;
  /** Its idempotency key. */
  readonly key: string | null;
  readonly ingest: SimProcess;
  readonly at: number;
  /** Undefined as long as the partner has no answer. */
  answer: number | undefined;
  answeredAt: number | undefined;
  /** The request_id in the answer. */
  answeredId: string | undefined;
}

/**
 * A stretch of time in which a process, or its way to MongoDB, was not well; it is well again at
 * `until`.
 */
export interface Disturbance {
  readonly kind: 'killed' | 'frozen' | 'cutOff';
  /** Undefined: everybody. */
  readonly process: SimProcess | undefined;
  readonly from: number;
  until: number;
}

/** When the record was erased, and how many mails of its account may have been out by then. */
export interface Erasure {
  readonly at: number;
  readonly possibleMails: number;
}

export const retention = { ...kept, malformedDays: 30, refusedDays: 7 };
/** Share of the calls that go wrong that are writes no majority confirms. */
const NOT_REPLICATED = 0.25;
export const silent = createLogger('simulation', 'silent');
/** Counts nothing. */
export const noMetric = { inc: () => {}, set: () => {}, observe: () => {} };
export const noMetrics = Object.fromEntries(
  Object.keys({ ...ingestMetrics, ...processorMetrics }).map((name) => [name, noMetric]),
) as unknown as IngestMetrics & ProcessorMetrics;

export class World {
  readonly random: Random;
  readonly scheduler: Scheduler;
  readonly requests = new MemoryCollection(['idempotencyDigest']);
  readonly accounts: MemoryCollection;
  readonly holds = new MemoryCollection();
  readonly mongo: MongoWeather = { away: false, stalled: false, shaky: 0, caller: undefined };
  readonly redis: RedisWeather = { away: false, lossy: 0, repeating: 0.05 };
  readonly smtp: RelayWeather = {
    away: false,
    shaky: 0,
    refuses: false,
    turnsAway: false,
    hangsUntil: 0,
  };
  readonly queue: SimQueue;
  readonly relay: SimRelay;
  readonly parts: Parts;
  readonly sent: Sent[] = [];
  readonly disturbances: Disturbance[] = [];
  /** When an operator's wish for another mail reached the account, by account id. */
  readonly mailWishes = new Map<string, number[]>();
  /** When an operator's move made work of a request, by request id. */
  readonly reopenings = new Map<string, number[]>();
  /** When a bounce was reported last, by request id. */
  readonly bounces = new Map<string, number>();
  /** What a worker has had in hand. */
  readonly claimed = new Set<string>();
  /** What commands printed as ended for good. */
  readonly ended: Ended[] = [];
  /** Orders to reopen a request, from the first try to the last. */
  readonly reopens: { readonly requestId: string; until: number }[] = [];
  /** What commands printed and was not so. */
  readonly untrue: string[] = [];
  /** What an operator erased, by request id. */
  readonly erasures = new Map<string, Erasure>();
  /** Accounts that an operator erased, as they were last, by account id. */
  readonly erasedAccounts = new Map<string, Account>();
  /** Requests of applicants whom an operator erases. */
  readonly toErase = new Set<string>();
  /** The addresses they were erased by. */
  readonly erasedPeople = new Set<string>();
  /** Told whenever a record's `dueAt` may have changed. */
  readonly onDue: (() => void)[] = [];

  constructor(seed: number, temperOf: (email: string) => Temper, parts: Parts = ourParts) {
    this.random = newRandom(seed);
    this.scheduler = new Scheduler(this.random);
    this.parts = parts;
    this.accounts = new MemoryCollection(parts.uniqueAccountKeys);
    this.queue = new SimQueue(this.scheduler, this.redis, parts.hasQueue);
    this.relay = new SimRelay(this.scheduler, this.smtp, temperOf);
  }

  newProcess(name: string, skewMs: number): SimProcess {
    return { name, alive: true, closing: false, frozenUntil: 0, skewMs };
  }

  /** A MongoDB client of `process`: its stores, as its wiring makes them. */
  connect(process: SimProcess, caller: Actor, socketTimeoutMs?: number) {
    const { Store, Ledger } = this.parts;
    const wire: Wire = newWire(this.scheduler, this.mongo, caller, socketTimeoutMs);
    const clock = this.#clockOf(process);
    const { tamper, concern } = this.parts;
    const options = {
      concern,
      replicates: () =>
        !this.mongo.stalled && !this.random.chance(this.mongo.shaky * NOT_REPLICATED),
    };
    const findsNothing = (filter: Document): boolean => this.#findsNothingDue(filter);
    const collections = {
      [SUBMISSIONS]: driverOf(this.requests, wire, { tamper, findsNothing, ...options }),
      [ACCOUNTS]: driverOf(this.accounts, wire, options),
      [PARTNER_HOLDS]: driverOf(this.holds, wire, options),
    };
    const hello = () => wire(() => ({ localTime: this.scheduler.date() }));
    const db = databaseOf(collections, hello);
    return {
      clock,
      db,
      store: new Store({ db, retention, clock }),
      dueWork: new DueWork({ db, clock }),
      holds: new PartnerHolds({ db, clock }),
      accounts: new AccountStore({ db, clock }),
      ledger: new Ledger({ db, clock }),
      ping: () => wire(() => true),
    };
  }

  /** Its measurement is wrong by less than half a second, as by a slow answer. */
  #clockOf(process: SimProcess): Clock {
    const local = this.scheduler.clockOf(process);
    if (this.parts.localClocks) return local;
    const clock = new DatabaseClock(local);
    const localTime = later(this.scheduler.date(), process.skewMs % 500);
    void clock.measure({ command: () => Promise.resolve({ localTime }) });
    return clock;
  }

  records(): readonly SubmissionRecord[] {
    return this.requests.all() as unknown as readonly SubmissionRecord[];
  }

  allAccounts(): readonly Account[] {
    return this.accounts.all() as unknown as readonly Account[];
  }

  /** When the next open record is due. */
  earliestDueAt(): number | undefined {
    const due = this.records().flatMap((record) =>
      isOpen(record.state) && record.dueAt !== undefined ? [record.dueAt.getTime()] : [],
    );
    return due.length === 0 ? undefined : Math.min(...due);
  }

  /**
   * A search for due records looks through the hours without rounds (processor.ts) in many steps.
   */
  #findsNothingDue({ dueAt }: Document): boolean {
    if (this.mongo.away || this.mongo.shaky > 0 || typeof dueAt !== 'object') return false;
    const { $lte: upTo } = dueAt as { readonly $lte?: Date };
    return upTo !== undefined && upTo.getTime() < (this.earliestDueAt() ?? Infinity);
  }

  /** MongoDB's server dies, and another one takes over with what a majority has. */
  crashMongo(): void {
    this.requests.rollBack();
    this.accounts.rollBack();
    for (const tell of this.onDue) tell();
  }

  disturb(kind: Disturbance['kind'], process: SimProcess | undefined, forMs: number): void {
    const { now } = this.scheduler;
    this.disturbances.push({ kind, process, from: now, until: now + forMs });
  }
}
