/**
 * Makes records durable by inserting waiting records together; each gets its own result.
 *
 * A batch leaves as soon as one of two slots is free. A lone record is sent at once; under load, a
 * batch holds what arrived during the previous insert, at most 256 records.
 */
import type { Collection, Db } from 'mongodb';
import { Turns } from '../fair/turns.ts';
import { ownerName } from '../partner/key-terms.ts';
import { newBatcher, type Batcher } from '../platform/stores/mongo-joined.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { PlainHistogram, PlainGauge } from '../platform/process/registry.ts';
import { pause } from '../platform/process/deadline.ts';
import { inSpans } from '../platform/process/tracing.ts';
import { wasSent } from '../platform/stores/inside-mongodb.ts';
import {
  databaseSpan,
  failureIn,
  isDuplicateKey,
  isLockConflict,
  writeTogether,
  requireDurable,
  type WriteContact,
  type WriteReply,
} from '../platform/stores/mongo.ts';
import { submissionCollection, type SubmissionRecord } from './submission.ts';

export const groupCommitLimits = {
  /** One batch is committed while the next is sent. */
  maxInFlight: 2,
  maxBatchDocuments: 256,
  /** Holds 60 of the largest bodies. */
  maxBatchBytes: 4 * 1024 * 1024,
  /** One second of work at 10,000 a second; beyond it the partner with most waiting gets a 500. */
  maxWaitingDocuments: 10_000,
  maxWaitingBytes: 16 * 1024 * 1024,
  /** What has less time left waits for quicker inserts; at most a share of the time-out. */
  timeToSend: { leastMs: 100, timesLastInsert: 1.2, mostShare: 0.75 },
  /** At this number nothing more is sent, so that all can be withdrawn before reconcile looks. */
  maxPendingWithdrawals: 500,
};
export type GroupCommitLimits = typeof groupCommitLimits;

export const notAcceptedReasons = [
  'keys_not_loaded',
  'no_room',
  'withdrawals_pending',
  'timed_out_waiting',
  'timed_out_sent',
  'database_away',
  'no_answer',
  'counts_differ',
  'write_concern',
  'write_error',
  'id_taken',
] as const;
type NotAccepted = (typeof notAcceptedReasons)[number];

/**
 * - `in_doubt`: sent without a reliable reply, so the record must be withdrawn.
 * - `unknown`: an earlier record may have been adopted, so neither 202 nor 500 is safe.
 * - `Bound`: an earlier record has the same idempotency key.
 */
export type CommitResult =
  | { readonly kind: 'stored' }
  | { readonly kind: 'not_stored' | 'in_doubt' | 'unknown'; readonly reason: NotAccepted }
  | Bound;

interface Entry {
  readonly record: SubmissionRecord;
  readonly bytes: number;
  readonly deadline: number;
  adopting: boolean;
  settle(result: CommitResult): void;
}

interface GroupCommitMetrics {
  readonly batchDocuments: PlainHistogram;
  readonly commitSeconds: PlainHistogram;
  readonly waitingDocuments: PlainGauge;
}
/** An estimate without the body. */
const RECORD_OVERHEAD_BYTES = 700;
/** A deadlock that the database ended, or a key that became free, costs a further one. */
const SENDS_AT_MOST = 4;
const APART_MS = 50;
/** An answer may be this late. */
const SWEEP_MS = 20;

const STORED: CommitResult = { kind: 'stored' };
const NOT_DURABLE: CommitResult = { kind: 'in_doubt', reason: 'write_concern' };
const WITHDRAWALS_PENDING: CommitResult = { kind: 'not_stored', reason: 'withdrawals_pending' };
const NO_ROOM: CommitResult = { kind: 'not_stored', reason: 'no_room' };
const WRITE_ERROR: CommitResult = { kind: 'in_doubt', reason: 'write_error' };
/**
 * Its id is stored although the insert failed, or its key is neither free nor bound. Both come from
 * an insert that seemed to fail, or a withdrawal at that moment, so a withdrawal settles them.
 */
const ID_TAKEN: CommitResult = { kind: 'in_doubt', reason: 'id_taken' };
const TIMED_OUT_WAITING: CommitResult = { kind: 'not_stored', reason: 'timed_out_waiting' };

interface CommitTools {
  readonly db: Db;
  readonly limits: GroupCommitLimits;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly metrics: GroupCommitMetrics;
  pendingWithdrawals(): number;
  /** Hears of inserts that fail. */
  readonly contact?: Pick<WriteContact, 'failed' | 'ok'>;
}

export class GroupCommit {
  readonly #tools: CommitTools;
  readonly #collection: Collection<SubmissionRecord>;
  /** A partner that sends more than the database takes waits for itself. */
  readonly #waiting = new Turns<Entry>({ sizeOf: ({ bytes }) => bytes });
  readonly #batcher: Batcher<Entry>;
  /** How long the last insert took. */
  #insertMs = 0;
  #fails = false;
  #sweeper: NodeJS.Timeout | undefined;
  #idleListeners: (() => void)[] = [];

  /** The client's socket time-out must be `timeoutMs`, which frees a hung connection. */
  constructor(tools: CommitTools) {
    this.#tools = tools;
    this.#collection = submissionCollection(tools.db);
    this.#batcher = newBatcher(
      tools.limits.maxInFlight,
      () => this.#takeBatch(),
      (batch) => this.#send(inKeyOrder(batch)),
    );
  }

  /** Never rejects. */
  record(record: SubmissionRecord): Promise<CommitResult> {
    const bytes = RECORD_OVERHEAD_BYTES + (record.body?.length() ?? 0);
    const { maxWaitingDocuments, maxWaitingBytes } = this.#tools.limits;
    if (this.#inDoubt()) return Promise.resolve(WITHDRAWALS_PENDING);
    const waiting = this.#waiting;
    const deadline = this.#tools.clock.monotonicMs() + this.#tools.timeoutMs;
    return new Promise((settle) => {
      const entry = { record, bytes, deadline, adopting: false, settle };
      waiting.put(ownerName(record.partnerId ?? '', record), entry);
      while (waiting.count > maxWaitingDocuments) waiting.giveWay()?.settle(NO_ROOM);
      while (waiting.size > maxWaitingBytes) waiting.giveWay('size')?.settle(NO_ROOM);
      this.#plan();
    });
  }

  whenIdle(): Promise<void> {
    return this.#isIdle()
      ? Promise.resolve()
      : new Promise((resolve) => this.#idleListeners.push(resolve));
  }

  #inDoubt(): boolean {
    return this.#tools.pendingWithdrawals() >= this.#tools.limits.maxPendingWithdrawals;
  }

  #isIdle(): boolean {
    return this.#waiting.count === 0 && this.#batcher.inFlight.size === 0;
  }

  #plan(): void {
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP_MS);
    this.#batcher.plan();
  }

  #takeBatch(): Entry[] {
    const { limits, clock, metrics } = this.#tools;
    const now = clock.monotonicMs();
    if (this.#inDoubt())
      for (const entry of this.#waiting.shed(() => true)) entry.settle(WITHDRAWALS_PENDING);
    const take = (leastMs: number): Entry[] => {
      let [documents, bytes] = [0, 0];
      return this.#waiting.take(
        (entry) => {
          if (documents >= limits.maxBatchDocuments) return false;
          if (documents > 0 && bytes + entry.bytes > limits.maxBatchBytes) return false;
          documents += 1;
          bytes += entry.bytes;
          return true;
        },
        ({ deadline }) => deadline - now >= leastMs,
      );
    };
    let batch = take(this.#neededMs(this.#insertMs));
    // The database may be quick again.
    if (batch.length === 0 && this.#batcher.inFlight.size === 0) batch = take(this.#neededMs(0));
    metrics.waitingDocuments.set(this.#waiting.count);
    if (batch.length === 0) this.#tellIfIdle();
    return batch;
  }

  /**
   * Above its capacity a database would otherwise work only for answers that come too late. What has
   * less time waits for an insert that is quicker.
   */
  #neededMs(insertMs: number): number {
    const { limits, timeoutMs } = this.#tools;
    const { leastMs, timesLastInsert, mostShare } = limits.timeToSend;
    return Math.min(Math.max(leastMs, timesLastInsert * insertMs), mostShare * timeoutMs);
  }

  async #send(batch: readonly Entry[], sends = 1): Promise<void> {
    const { timeoutMs, clock, metrics } = this.#tools;
    const sentAt = clock.monotonicMs();
    metrics.batchDocuments.observe(batch.length);
    try {
      const documents = batch.map(({ record }) => record);
      const attributes = { 'db.operation.batch.size': batch.length };
      // The trace of each request shows the shared insert.
      const reply = await inSpans(
        databaseSpan('insert', this.#collection, attributes),
        documents.map(({ traceparent }) => traceparent),
        () => writeTogether(this.#collection, { documents }, timeoutMs),
      );
      this.#insertMs = clock.monotonicMs() - sentAt;
      metrics.commitSeconds.observe(this.#insertMs / 1_000);
      await this.#settleAnswered(batch, reply, sends);
    } catch (error) {
      this.#failed(error);
      const isSent = wasSent(error);
      if (isSent) this.#insertMs = clock.monotonicMs() - sentAt;
      const result = isSent
        ? ({ kind: 'in_doubt', reason: 'no_answer' } as const)
        : ({ kind: 'not_stored', reason: 'database_away' } as const);
      for (const entry of batch) entry.settle(result);
    }
  }

  async #settleAnswered(batch: readonly Entry[], reply: WriteReply, sends: number): Promise<void> {
    const { n, writeErrors, concern } = reply;
    const durable = concern === undefined;
    if (n + writeErrors.length !== batch.length) {
      for (const entry of batch) entry.settle({ kind: 'in_doubt', reason: 'counts_differ' });
      return;
    }
    const failures = writeErrors.filter((one) => !isDuplicateKey(one) && !isLockConflict(one));
    if (failures.length > 0 || !durable)
      this.#failed(failureIn({ ...reply, writeErrors: failures }));
    else if (this.#fails) this.#fails = this.#tools.contact?.ok() === false;
    const failedAt = new Map(writeErrors.map((writeError) => [writeError.index, writeError]));
    const keyed: Entry[] = [];
    /** What may still be stored, and what it is told otherwise. */
    const retryable = new Map<Entry, CommitResult>();
    for (const [index, entry] of batch.entries()) {
      const failure = failedAt.get(index);
      if (failure === undefined) entry.settle(durable ? STORED : NOT_DURABLE);
      else if (isLockConflict(failure)) retryable.set(entry, WRITE_ERROR);
      else if (!isDuplicateKey(failure)) entry.settle(WRITE_ERROR);
      else if (entry.record.idempotencyDigest === undefined) entry.settle(ID_TAKEN);
      else keyed.push(entry);
    }
    for (const entry of await this.#settleKeyed(keyed)) retryable.set(entry, ID_TAKEN);
    const again: Entry[] = [];
    for (const [entry, result] of retryable) {
      if (sends < SENDS_AT_MOST && !this.#isLate(entry)) again.push(entry);
      else entry.settle(result);
    }
    if (again.length === 0) return;
    // Two that deadlocked would meet again.
    await pause(Math.random() * APART_MS);
    await this.#send(inKeyOrder(again), sends + 1);
  }

  /**
   * The duplicate is the key or, if no record has that key, the `_id`. Returns those whose key is
   * free, because the first record was withdrawn.
   */
  async #settleKeyed(keyed: readonly Entry[]): Promise<Entry[]> {
    const entries: Entry[] = [];
    for (const entry of keyed) {
      // Its answer is a 500, after which the first record must not be adopted.
      if (this.#isLate(entry)) entry.settle({ kind: 'in_doubt', reason: 'timed_out_sent' });
      else entries.push(entry);
    }
    if (entries.length === 0) return [];
    for (const entry of entries) entry.adopting = true;
    const free: Entry[] = [];
    try {
      const records = entries.map(({ record }) => record);
      const results = await adoptFirst(this.#collection, records, this.#tools.timeoutMs);
      for (const [index, entry] of entries.entries()) {
        const bound = results[index];
        if (bound === undefined) free.push(entry);
        else entry.settle(bound);
      }
    } catch {
      for (const entry of entries) entry.settle({ kind: 'unknown', reason: 'no_answer' });
    }
    for (const entry of free) entry.adopting = false;
    return free;
  }

  #failed(error: unknown): void {
    this.#fails = true;
    this.#tools.contact?.failed(error);
  }

  #isLate({ deadline }: Entry): boolean {
    return deadline <= this.#tools.clock.monotonicMs();
  }

  #sweep(): void {
    const now = this.#tools.clock.monotonicMs();
    for (const entry of this.#waiting.shed(({ deadline }) => deadline <= now))
      entry.settle(TIMED_OUT_WAITING);
    for (const batch of this.#batcher.inFlight) {
      for (const entry of batch)
        if (entry.deadline <= now)
          entry.settle({
            kind: entry.adopting ? 'unknown' : 'in_doubt',
            reason: 'timed_out_sent',
          });
    }
    this.#tools.metrics.waitingDocuments.set(this.#waiting.count);
    this.#tellIfIdle();
  }

  #tellIfIdle(): void {
    if (!this.#isIdle()) return;
    clearInterval(this.#sweeper);
    this.#sweeper = undefined;
    for (const listener of this.#idleListeners.splice(0)) listener();
  }
}

/** Batches written in the same order cannot deadlock. */
function inKeyOrder(batch: readonly Entry[]): readonly Entry[] {
  if (batch.every(({ record }) => record.idempotencyDigest === undefined)) return batch;
  const digestOf = ({ record }: Entry): string => record.idempotencyDigest ?? '';
  return batch.toSorted((one, other) => (digestOf(one) < digestOf(other) ? -1 : 1));
}

/*
 * Idempotency keys: a request with a used key gets the result of the first request.
 *
 * A unique index binds a key to one record, until its withdrawal or expiry frees the key. A later
 * request adopts the first record, which then cannot be withdrawn. So the later answer may be 202
 * although the first was 500.
 */

const firstFields = {
  idempotencyDigest: 1,
  receivedAt: 1,
  bodySha256: 1,
  erasedAt: 1,
  adopted: 1,
  state: 1,
  version: 1,
  traceparent: 1,
} as const;
type First = Pick<SubmissionRecord, '_id' | (keyof typeof firstFields & keyof SubmissionRecord)>;

export interface Bound {
  readonly kind: 'replayed' | 'mismatched' | 'erased';
  readonly first: First;
}

/** Undefined for a record whose key is free. May adopt records even if it rejects. */
export async function adoptFirst(
  collection: Collection<SubmissionRecord>,
  records: readonly SubmissionRecord[],
  timeoutMs: number,
): Promise<(Bound | undefined)[]> {
  const updates = records.map(({ idempotencyDigest: digest, bodySha256 }) => ({
    q: { idempotencyDigest: digest, bodySha256 },
    u: { $set: { adopted: true } },
  }));
  requireDurable(await writeTogether(collection, { updates }, timeoutMs));
  const found: First[] = await collection
    .find(
      { idempotencyDigest: { $in: records.map((record) => record.idempotencyDigest!) } },
      { readConcern: 'majority', projection: firstFields, maxTimeMS: timeoutMs },
    )
    .toArray();
  const byDigest = new Map(found.map((first) => [first.idempotencyDigest, first]));
  return records.map((record) => boundTo(byDigest.get(record.idempotencyDigest), record));
}

function boundTo(first: First | undefined, { bodySha256 }: SubmissionRecord): Bound | undefined {
  if (first === undefined) return undefined;
  if (first.erasedAt !== undefined) return { kind: 'erased', first };
  if (first.bodySha256 !== bodySha256) return { kind: 'mismatched', first };
  // Another record took the key after the update, so the caller tries again.
  return first.adopted === true ? { kind: 'replayed', first } : undefined;
}
