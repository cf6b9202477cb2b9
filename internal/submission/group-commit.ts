/**
 * Makes records durable: what waits together goes to MongoDB in one insert, and every document learns its own fate.
 *
 * A batch leaves as soon as a slot is free, so a lone request never waits for company; under load the requests that
 * arrive while the slots are busy form the next batch by themselves. There is no timer in the path of a request.
 */
import { MongoServerSelectionError, type Collection } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { insertTogether, isDuplicateKey, type WriteReply } from '../platform/mongo.ts';
import type { GroupCommitLimits } from './limits.ts';
import type { SubmissionRecord } from './submission.ts';
import { traceInsert } from './trace-insert.ts';

/**
 * The fate of one record:
 * - `stored`: majority-committed and journaled;
 * - `refused`: certainly not stored (no room, never sent, or the database said so);
 * - `in_doubt`: sent, but no trustworthy answer came; it has to be withdrawn.
 */
export type CommitResult = 'stored' | 'refused' | 'in_doubt';

export interface GroupCommitMetrics {
  readonly batchDocuments: { observe(value: number): void };
  readonly commitSeconds: { observe(value: number): void };
  readonly waitingDocuments: { set(value: number): void };
  readonly notAccepted: { inc(labels: { reason: string }): void };
  readonly refusedDropped: { inc(): void };
}

interface Entry {
  readonly record: SubmissionRecord;
  readonly bytes: number;
  readonly deadline: number;
  settle(result: CommitResult, reason?: string): void;
}

/** Rough size of a record without its body: fields, ids, BSON framing. */
const RECORD_OVERHEAD_BYTES = 700;
/** How often deadlines are looked at. An answer may be late by this much, which no partner can tell. */
const SWEEP_MS = 20;
/** A slot whose insert has not settled this long after its deadline is freed all the same. */
const SLOT_GRACE_MS = 250;

export class GroupCommit {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #limits: GroupCommitLimits;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #metrics: GroupCommitMetrics;
  #waiting: Entry[] = [];
  #spare: Entry[] = [];
  #waitingBytes = 0;
  #inFlight = new Set<readonly Entry[]>();
  #dispatchPlanned = false;
  #sweeper: NodeJS.Timeout | undefined;
  #idleListeners: (() => void)[] = [];

  /** `collection` must belong to a client of its own whose socket time-out is `timeoutMs`: that frees a hung connection. */
  constructor(options: {
    readonly collection: Collection<SubmissionRecord>;
    readonly limits: GroupCommitLimits;
    readonly timeoutMs: number;
    readonly clock: Clock;
    readonly metrics: GroupCommitMetrics;
  }) {
    this.#collection = options.collection;
    this.#limits = options.limits;
    this.#timeoutMs = options.timeoutMs;
    this.#clock = options.clock;
    this.#metrics = options.metrics;
  }

  /** Resolves with the record's fate within the time-out (plus a sweep); never rejects. */
  record(record: SubmissionRecord): Promise<CommitResult> {
    const bytes = RECORD_OVERHEAD_BYTES + (record.body?.length() ?? 0);
    if (
      this.#waiting.length >= this.#limits.maxWaitingDocuments ||
      this.#waitingBytes + bytes > this.#limits.maxWaitingBytes
    ) {
      this.#metrics.notAccepted.inc({ reason: 'no_room' });
      return Promise.resolve('refused');
    }
    return new Promise((resolve) => {
      this.#waitingBytes += bytes;
      this.#waiting.push({
        record,
        bytes,
        deadline: this.#clock.monotonicMs() + this.#timeoutMs,
        settle: once((result: CommitResult, reason?: string) => {
          if (result !== 'stored') this.#metrics.notAccepted.inc({ reason: reason ?? result });
          resolve(result);
        }),
      });
      this.#planDispatch();
    });
  }

  /** Writes `record` if there is room to spare, else drops and counts it. Nobody waits for it. */
  offer(record: SubmissionRecord): void {
    const room = this.#limits.maxWaitingDocuments * this.#limits.spareShare;
    if (this.#waiting.length + this.#spare.length >= room) {
      this.#metrics.refusedDropped.inc();
      return;
    }
    this.#spare.push({
      record,
      bytes: RECORD_OVERHEAD_BYTES,
      deadline: this.#clock.monotonicMs() + this.#timeoutMs,
      settle: once((result: CommitResult) => {
        if (result !== 'stored') this.#metrics.refusedDropped.inc();
      }),
    });
    this.#planDispatch();
  }

  /** Resolves once nothing waits and nothing is in flight. */
  whenIdle(): Promise<void> {
    return this.#isIdle() ? Promise.resolve() : new Promise((resolve) => this.#idleListeners.push(resolve));
  }

  #isIdle(): boolean {
    return this.#waiting.length === 0 && this.#spare.length === 0 && this.#inFlight.size === 0;
  }

  /** Dispatches after the event loop has read what has arrived already, so that one turn's requests share a batch. */
  #planDispatch(): void {
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_MS);
    if (this.#dispatchPlanned || this.#inFlight.size >= this.#limits.maxInFlight) return;
    this.#dispatchPlanned = true;
    setImmediate(() => {
      this.#dispatchPlanned = false;
      this.#dispatch();
    });
  }

  #dispatch(): void {
    const now = this.#clock.monotonicMs();
    while (this.#inFlight.size < this.#limits.maxInFlight) {
      const batch = this.#takeBatch(now);
      if (batch.length === 0) break;
      void this.#send(batch);
    }
    this.#metrics.waitingDocuments.set(this.#waiting.length);
    this.#tellIfIdle();
  }

  #takeBatch(now: number): Entry[] {
    const batch: Entry[] = [];
    let bytes = 0;
    const takeFrom = (queue: Entry[]): number => {
      let taken = 0;
      for (const entry of queue) {
        if (batch.length >= this.#limits.maxBatchDocuments) break;
        if (batch.length > 0 && bytes + entry.bytes > this.#limits.maxBatchBytes) break;
        taken += 1;
        if (entry.deadline - now < Math.min(this.#limits.minSendBudgetMs, this.#timeoutMs / 2)) {
          entry.settle('refused', 'timed_out_waiting');
          continue;
        }
        batch.push(entry);
        bytes += entry.bytes;
      }
      return taken;
    };
    const taken = takeFrom(this.#waiting);
    for (let index = 0; index < taken; index += 1) this.#waitingBytes -= this.#waiting[index]?.bytes ?? 0;
    this.#waiting.splice(0, taken);
    this.#spare.splice(0, takeFrom(this.#spare));
    return batch;
  }

  async #send(batch: readonly Entry[]): Promise<void> {
    this.#inFlight.add(batch);
    const sentAt = this.#clock.monotonicMs();
    this.#metrics.batchDocuments.observe(batch.length);
    try {
      const reply = await traceInsert(this.#collection, batch, () =>
        insertTogether(
          this.#collection,
          batch.map((entry) => entry.record),
          this.#timeoutMs + SLOT_GRACE_MS,
        ),
      );
      this.#metrics.commitSeconds.observe((this.#clock.monotonicMs() - sentAt) / 1_000);
      await this.#settleAnswered(batch, reply);
    } catch (error) {
      const [result, reason] = wasSent(error)
        ? (['in_doubt', 'no_answer'] as const)
        : (['refused', 'database_away'] as const);
      for (const entry of batch) entry.settle(result, reason);
    } finally {
      this.#inFlight.delete(batch);
      this.#dispatch();
    }
  }

  /** Each document's fate by the database's answer: an error fails its document only. */
  async #settleAnswered(batch: readonly Entry[], { n, writeErrors, durable }: WriteReply): Promise<void> {
    if (n + writeErrors.length !== batch.length) {
      for (const entry of batch) entry.settle('in_doubt', 'counts_differ');
      return;
    }
    const failedAt = new Map(writeErrors.map((writeError) => [writeError.index, writeError]));
    const ownIdExists: Entry[] = [];
    for (const [index, entry] of batch.entries()) {
      const failure = failedAt.get(index);
      if (failure === undefined) entry.settle(durable ? 'stored' : 'in_doubt', 'write_concern');
      else if (isDuplicateKey(failure)) ownIdExists.push(entry);
      else entry.settle('refused', 'write_error');
    }
    await this.#settleExisting(ownIdExists);
  }

  /** A duplicate of our own `_id` is our own earlier insert, or a withdrawal: a majority read tells which. */
  async #settleExisting(entries: readonly Entry[]): Promise<void> {
    if (entries.length === 0) return;
    try {
      const found = await this.#collection
        .find(
          { _id: { $in: entries.map((entry) => entry.record._id) } },
          { readConcern: 'majority', projection: { state: 1, bodySha256: 1, receivedAt: 1 } },
        )
        .toArray();
      const byId = new Map(found.map((record) => [record._id, record]));
      for (const entry of entries) {
        const other = byId.get(entry.record._id);
        const ours =
          other !== undefined &&
          other.state !== 'withdrawn' &&
          other.bodySha256 === entry.record.bodySha256 &&
          other.receivedAt.getTime() === entry.record.receivedAt.getTime();
        entry.settle(ours ? 'stored' : 'refused', 'id_taken');
      }
    } catch {
      for (const entry of entries) entry.settle('in_doubt', 'no_answer');
    }
  }

  /** Gives up on what has run out of time: unsent documents are refused, sent ones are in doubt. */
  #sweep(): void {
    const now = this.#clock.monotonicMs();
    // Deadlines are in order of arrival, so the expired ones stand in front.
    let expired = 0;
    while ((this.#waiting[expired]?.deadline ?? Infinity) <= now) {
      const entry = this.#waiting[expired];
      this.#waitingBytes -= entry?.bytes ?? 0;
      entry?.settle('refused', 'timed_out_waiting');
      expired += 1;
    }
    this.#waiting.splice(0, expired);
    this.#spare = this.#spare.filter((entry) => {
      if (entry.deadline > now) return true;
      entry.settle('refused');
      return false;
    });
    for (const batch of this.#inFlight) {
      for (const entry of batch) if (entry.deadline <= now) entry.settle('in_doubt', 'timed_out_sent');
    }
    this.#metrics.waitingDocuments.set(this.#waiting.length);
    this.#tellIfIdle();
  }

  #tellIfIdle(): void {
    if (!this.#isIdle()) return;
    clearInterval(this.#sweeper);
    this.#sweeper = undefined;
    for (const listener of this.#idleListeners.splice(0)) listener();
  }
}

/** Whether anything of the batch may have left: finding a server and getting a connection come before that. */
function wasSent(error: unknown): boolean {
  if (error instanceof MongoServerSelectionError) return false;
  const name = error instanceof Error ? error.name : '';
  return ![
    'MongoPoolClearedError',
    'MongoWaitQueueTimeoutError',
    'MongoPoolClosedError',
    'MongoTopologyClosedError',
  ].includes(name);
}

function once<Arguments extends unknown[]>(call: (...values: Arguments) => void): (...values: Arguments) => void {
  let called = false;
  return (...values) => {
    if (called) return;
    called = true;
    call(...values);
  };
}
