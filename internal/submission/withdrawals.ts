/**
 * Makes a 500 true: a record whose insert is in doubt is moved to `withdrawn`, landed or not, until MongoDB confirms it.
 *
 * The upsert takes the record's `_id`. If the insert has landed, the record becomes final; if it lands later, it meets
 * our document under the same `_id` and fails. A record that a worker has claimed meanwhile is left to it and counted.
 */
import type { Collection } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { backoffMs, pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { updateTogether } from '../platform/mongo.ts';
import { traceFields } from '../platform/tracing.ts';
import { MAX_PENDING_WITHDRAWALS, WITHDRAWAL_BATCH, WITHDRAWAL_DEADLINE_MS, WITHDRAWAL_RETRY } from './limits.ts';
import { moveUpdate } from './move-update.ts';
import { statesBefore } from './states.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from './submission.ts';

export interface WithdrawalMetrics {
  readonly withdrawals: { inc(labels: { result: string }, value?: number): void };
  readonly withdrawalsPending: { set(value: number): void };
}

export class Withdrawals {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #retentionDays: number;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #metrics: WithdrawalMetrics;
  readonly #pending = new Map<string, SubmissionRecord>();
  readonly #stop = new AbortController();
  #working: Promise<void> | undefined;

  constructor(options: {
    readonly collection: Collection<SubmissionRecord>;
    readonly retentionDays: number;
    readonly clock: Clock;
    readonly log: Logger;
    readonly metrics: WithdrawalMetrics;
  }) {
    this.#collection = options.collection;
    this.#retentionDays = options.retentionDays;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#metrics = options.metrics;
  }

  /** Remembers the record and works on it until it is settled. Beyond the bound the newest is dropped and counted. */
  add(record: SubmissionRecord): void {
    if (this.#pending.size >= MAX_PENDING_WITHDRAWALS) {
      this.#metrics.withdrawals.inc({ result: 'dropped' });
      this.#log.error(logFields(record), 'too many withdrawals pending; one was dropped');
      return;
    }
    this.#pending.set(record._id, record);
    this.#metrics.withdrawalsPending.set(this.#pending.size);
    this.#working ??= this.#work();
  }

  /** Resolves once all are settled, or on `stop()`. */
  whenSettled(): Promise<void> {
    return this.#working ?? Promise.resolve();
  }

  /** Gives up on what is still pending; each is told in the log, because its record may now be processed after a 500. */
  stop(): void {
    this.#stop.abort();
    for (const record of this.#pending.values()) this.#log.error(logFields(record), 'withdrawal abandoned');
  }

  async #work(): Promise<void> {
    let failures = 0;
    while (this.#pending.size > 0 && !this.#stop.signal.aborted) {
      const before = this.#pending.size;
      try {
        await this.#settleSome(this.#next());
      } catch (error) {
        this.#log.debug({ err: error }, 'withdrawal failed; trying again');
      }
      failures = this.#pending.size < before ? 0 : failures + 1;
      this.#metrics.withdrawalsPending.set(this.#pending.size);
      if (failures > 0) await pause(backoffMs(failures, { ...WITHDRAWAL_RETRY, jitter: 0.2 }), this.#stop.signal);
    }
    this.#working = undefined;
  }

  /** The oldest, in the order of ids, as everybody writes who writes several. */
  #next(): SubmissionRecord[] {
    const oldest = [...this.#pending.values()].slice(0, WITHDRAWAL_BATCH);
    return oldest.toSorted((one, other) => (one._id < other._id ? -1 : 1));
  }

  async #settleSome(records: readonly SubmissionRecord[]): Promise<void> {
    const update = moveUpdate('withdrawn', {
      now: this.#clock.now(),
      attempt: 0,
      reason: 'answered 500 while in doubt',
      dueInMs: 0,
      retention: { withdrawn: this.#retentionDays },
    });
    const { n, writeErrors, durable } = await updateTogether(
      this.#collection,
      records.map((record) => ({
        q: { _id: record._id, version: 0, state: { $in: statesBefore('withdraw') } },
        u: {
          ...update,
          $set: { ...update.$set, httpStatus: 500 },
          $setOnInsert: {
            receivedAt: record.receivedAt,
            remoteIp: record.remoteIp,
            bodyBytes: record.bodyBytes,
            attempts: 0,
            schema: RECORD_SCHEMA,
            ...(record.partnerId === undefined ? {} : { partnerId: record.partnerId }),
            ...(record.traceparent === undefined ? {} : { traceparent: record.traceparent }),
          },
        },
        upsert: true,
      })),
      WITHDRAWAL_DEADLINE_MS,
    );
    if (!durable || n + writeErrors.length !== records.length) return;
    const failed = new Set(writeErrors.map((writeError) => writeError.index));
    for (const [index, record] of records.entries()) if (!failed.has(index)) this.#settled(record, 'withdrawn');
    await this.#settleExisting(records.filter((_, index) => failed.has(index)));
  }

  /**
   * The upsert met the `_id` in a state it does not withdraw: withdrawn by an earlier try whose answer was lost, or taken
   * by a worker that was faster, which the margins of `dueAt` make very rare. Found as neither, the insert landed between
   * the look and the insert of the upsert, and the next round withdraws it.
   */
  async #settleExisting(records: readonly SubmissionRecord[]): Promise<void> {
    if (records.length === 0) return;
    const found = await this.#collection
      .find(
        {
          _id: { $in: records.map((record) => record._id) },
          $or: [{ version: { $gt: 0 } }, { state: 'withdrawn' }],
        },
        { projection: { state: 1 }, readConcern: 'majority' },
      )
      .toArray();
    for (const { _id, state } of found) {
      const record = this.#pending.get(_id);
      if (record === undefined) continue;
      if (state !== 'withdrawn') {
        this.#log.error(logFields(record), 'answered 500, but the record was already being processed');
      }
      this.#settled(record, state === 'withdrawn' ? 'withdrawn' : 'too_late');
    }
  }

  #settled(record: SubmissionRecord, result: string): void {
    this.#pending.delete(record._id);
    this.#metrics.withdrawals.inc({ result });
  }
}

function logFields(record: SubmissionRecord) {
  return { request_id: record._id, ...traceFields(record.traceparent) };
}
