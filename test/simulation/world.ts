/**
 * A whole service in memory: doors, processors, an operator, MongoDB, Redis, the mail server and time.
 *
 * The decisions are the service's own code: group commit, withdrawals, the stores, claims, attempts, verdicts, outage
 * gates, reconcile. Only what lies beyond the drivers is a model. That is the one exception to "no mocks of our stores":
 * it makes three days of outages and crashes last milliseconds, and the same seed always tells the same story.
 */
import { AccountStore } from '../../internal/account/account-store.ts';
import type { Account } from '../../internal/account/account.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { isOpen, type Actor } from '../../internal/submission/states.ts';
import { SubmissionStore } from '../../internal/submission/submission-store.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { MemoryCollection } from './memory-collection.ts';
import { SimQueue, type RedisWeather } from './queue.ts';
import { newRandom, type Random } from './random.ts';
import { SimRelay, type RelayWeather, type Temper } from './relay.ts';
import { Scheduler, type SimProcess } from './scheduler.ts';
import { newWire, type MongoWeather } from './wire.ts';
import { driverOf, type Tamper, type Wire } from './driver.ts';

/** Parts that a test may replace by broken ones, to see that the simulation notices. */
export interface Parts {
  readonly Store: typeof SubmissionStore;
  readonly Accounts: typeof AccountStore;
  readonly tamper: Tamper;
  readonly uniqueAccountKeys: readonly string[];
  readonly reconciles: boolean;
  readonly withdraws: boolean;
  /** Whether the mailer looks at the claim in the instant before the content. */
  readonly looksOnceMore: boolean;
  readonly answersDoubtWith: 202 | 500;
}

export const ourParts: Parts = {
  Store: SubmissionStore,
  Accounts: AccountStore,
  tamper: (sent) => sent,
  uniqueAccountKeys: ['emailNormalized', 'ein', 'requestId'],
  reconciles: true,
  withdraws: true,
  looksOnceMore: true,
  answersDoubtWith: 500,
};

/** What a partner was told, and what was sent. */
export interface Sent {
  readonly requestId: string;
  readonly sha256: string;
  readonly email: string;
  readonly ein: string;
  readonly valid: boolean;
  readonly door: SimProcess;
  readonly at: number;
  answer: 202 | 500 | undefined;
}

/** A stretch of time in which a process, or its way to MongoDB, was not well; it is well again at `until`. */
export interface Disturbance {
  readonly kind: 'killed' | 'frozen' | 'cutOff';
  /** Undefined: everybody. */
  readonly process: SimProcess | undefined;
  readonly from: number;
  until: number;
}

export const retention = { completed: 400, rejected: 90, undeliverable: 400 } as const;
export const silent = createLogger('simulation', 'silent');
/** Counts nothing. */
export const noMetric = { inc: () => {}, set: () => {}, observe: () => {} };
/** Has every metric anybody asks for. */
export const noMetrics = new Proxy<Record<string, typeof noMetric>>({}, { get: () => noMetric });

export class World {
  readonly random: Random;
  readonly scheduler: Scheduler;
  readonly requests = new MemoryCollection();
  readonly accounts: MemoryCollection;
  readonly mongo: MongoWeather = { away: false, shaky: 0, caller: undefined };
  readonly redis: RedisWeather = { away: false, lossy: 0, repeating: 0.05 };
  readonly smtp: RelayWeather = { away: false, shaky: 0 };
  readonly queue: SimQueue;
  readonly relay: SimRelay;
  readonly parts: Parts;
  readonly sent: Sent[] = [];
  readonly disturbances: Disturbance[] = [];
  /** When an operator's wish for another mail reached the account, by account id. */
  readonly mailWishes = new Map<string, number[]>();
  /** Told whenever a record's `dueAt` may have changed. */
  readonly onDue: (() => void)[] = [];

  constructor(seed: number, temperOf: (email: string) => Temper, parts: Parts = ourParts) {
    this.random = newRandom(seed);
    this.scheduler = new Scheduler(this.random);
    this.parts = parts;
    this.accounts = new MemoryCollection(parts.uniqueAccountKeys);
    this.queue = new SimQueue(this.scheduler, this.redis);
    this.relay = new SimRelay(this.scheduler, this.smtp, { temperOf, looksOnceMore: parts.looksOnceMore });
  }

  newProcess(name: string, skewMs: number): SimProcess {
    return { name, alive: true, frozenUntil: 0, skewMs };
  }

  /** A MongoDB client of `process`: its stores, as its wiring makes them. */
  connect(process: SimProcess, caller: Actor, socketTimeoutMs?: number) {
    const { Store, Accounts } = this.parts;
    const wire: Wire = newWire(this.scheduler, this.mongo, caller, socketTimeoutMs);
    const clock = this.scheduler.clockOf(process);
    const requests = driverOf<SubmissionRecord>(this.requests, wire, this.parts.tamper);
    const accounts = driverOf<Account>(this.accounts, wire);
    return {
      clock,
      requests,
      accountCollection: accounts,
      store: new Store({ collection: requests, retention, clock }),
      accounts: new Accounts({ collection: accounts, clock }),
      ping: () => wire(() => true),
    };
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

  disturb(kind: Disturbance['kind'], process: SimProcess | undefined, forMs: number): void {
    const { now } = this.scheduler;
    this.disturbances.push({ kind, process, from: now, until: now + forMs });
  }
}
