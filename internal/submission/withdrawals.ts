/**
 * Makes every 500 true: a record whose insert is in doubt becomes `withdrawn`.
 *
 * An upsert takes the record's `_id`, so an insert that lands later fails. A claimed record stays
 * with its worker and is counted. An adopted record stays, because a later request may be answered
 * 202. An applied withdrawal keeps workers away even without a majority, so untried records come
 * first.
 */
import type { Collection } from 'mongodb';
import { backoffMs, pause } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import type { Logger } from '../platform/process/log.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { writeTogether, type WriteReply } from '../platform/stores/mongo.ts';
import { traceFields } from '../platform/process/tracing.ts';
import type { LabelledCounter, PlainGauge } from '../platform/process/registry.ts';
import { moveOf, type MoveTools, type MoveWrite } from './move-of.ts';
import { nextState } from './states.ts';
import { RECORD_SCHEMA, submissionCollection, type SubmissionRecord } from './submission.ts';

/** After a failure a batch has a quarter of the size; after a success, `least` more. */
const WITHDRAWAL_BATCH = { most: 500, least: 16 } as const;
const WITHDRAWAL_DEADLINE_MS = 5_000;
/**
 * An applied withdrawal keeps workers away, so the next write need not wait for the majority. Each
 * write ends within 5 s, so three end before reconcile first looks, at 15 s.
 */
const WITHDRAWAL_MAJORITY_MS = 1_000;
const WITHDRAWAL_RETRY = { firstMs: 250, capMs: 2_000 } as const;

export const withdrawalResults = ['withdrawn', 'adopted', 'too_late', 'abandoned'] as const;

interface WithdrawalMetrics {
  readonly withdrawals: LabelledCounter<{ readonly result: (typeof withdrawalResults)[number] }>;
  readonly withdrawalsPending: PlainGauge;
}

type Doubtful = Pick<
  SubmissionRecord,
  '_id' | 'receivedAt' | 'remoteIp' | 'bodyBytes' | 'partnerId' | 'test' | 'traceparent'
> & {
  tried: boolean;
  /** Written, but without a majority, so a rollback may undo it. */
  applied: boolean;
};

interface WithdrawalTools extends Pick<MoveTools, 'db' | 'clock' | 'tellEnd'> {
  readonly retentionDays: number;
  readonly log: Logger;
  readonly metrics: WithdrawalMetrics;
}

export class Withdrawals {
  readonly #tools: WithdrawalTools;
  readonly #collection: Collection<SubmissionRecord>;
  /** The least recently tried record comes first. */
  readonly #pending = new Map<string, Doubtful>();
  readonly #stop = new AbortController();
  #batch: number = WITHDRAWAL_BATCH.most;
  #working: Promise<void> | undefined;

  constructor(tools: WithdrawalTools) {
    this.#tools = tools;
    this.#collection = submissionCollection(tools.db);
  }

  get pending(): number {
    return this.#pending.size;
  }

  add(record: SubmissionRecord): void {
    const { _id, receivedAt, remoteIp, bodyBytes, partnerId, test, traceparent } = record;
    this.#pending.set(_id, {
      _id,
      receivedAt,
      remoteIp,
      bodyBytes,
      tried: false,
      applied: false,
      ...defined({ partnerId, test, traceparent }),
    });
    this.#tools.metrics.withdrawalsPending.set(this.#pending.size);
    this.#working ??= this.#work();
  }

  whenSettled(): Promise<void> {
    return this.#working ?? Promise.resolve();
  }

  /** Logs what remains, because it may be processed although answered 500. */
  stop(): void {
    if (this.#stop.signal.aborted) return;
    this.#stop.abort();
    for (const record of this.#pending.values()) {
      this.#tools.metrics.withdrawals.inc({ result: 'abandoned' });
      this.#tools.log.error(logFields(record), 'withdrawal abandoned');
    }
  }

  async #work(): Promise<void> {
    let failures = 0;
    while (this.#pending.size > 0 && !this.#stop.signal.aborted) {
      const before = this.#pending.size;
      const batch = this.#next();
      try {
        await this.#settleSome(batch);
        this.#batch = Math.min(WITHDRAWAL_BATCH.most, this.#batch + WITHDRAWAL_BATCH.least);
      } catch (error) {
        this.#batch = Math.max(WITHDRAWAL_BATCH.least, Math.ceil(this.#batch / 4));
        this.#tools.log.debug({ err: error }, 'withdrawal failed; trying again');
      }
      for (const record of batch) this.#moveToBack(record);
      failures = this.#pending.size < before ? 0 : failures + 1;
      this.#tools.metrics.withdrawalsPending.set(this.#pending.size);
      const [first] = this.#pending.values();
      if (failures > 0 && first?.tried !== false) {
        await pause(backoffMs(failures, WITHDRAWAL_RETRY), this.#stop.signal);
      }
    }
    this.#working = undefined;
  }

  #moveToBack(record: Doubtful): void {
    if (!this.#pending.delete(record._id)) return;
    record.tried = true;
    this.#pending.set(record._id, record);
  }

  /** All writers write in order of `_id`, which prevents most deadlocks. */
  #next(): Doubtful[] {
    const [first] = this.#pending.values();
    const alike = [...this.#pending.values()].filter(({ applied }) => applied === first?.applied);
    return alike.slice(0, this.#batch).toSorted((one, other) => (one._id < other._id ? -1 : 1));
  }

  async #settleSome(records: readonly Doubtful[]): Promise<void> {
    const applied = records[0]?.applied === true;
    const { n, writeErrors, concern } = await this.#withdraw(records, { upsert: !applied });
    if (!applied && n + writeErrors.length !== records.length) return;
    if (concern !== undefined) {
      for (const record of records) record.applied = true;
      return;
    }
    if (applied) {
      await this.#settleExisting(records);
      // A record that is still pending was rolled back.
      for (const record of records) record.applied = false;
      return;
    }
    const failed = new Set(writeErrors.map((writeError) => writeError.index));
    for (const [index, record] of records.entries())
      if (!failed.has(index)) this.#settled(record, 'withdrawn');
    await this.#settleExisting(records.filter((_, index) => failed.has(index)));
  }

  /** Without `upsert`, an applied withdrawal only waits for its majority. */
  #withdraw(
    records: readonly Doubtful[],
    { upsert }: { readonly upsert: boolean },
  ): Promise<WriteReply> {
    const { filter, update } = this.#move();
    const updates = records.map(({ _id, tried: _tried, applied: _applied, ...received }) => ({
      q: { _id, ...filter },
      u: { ...update, $setOnInsert: { ...received, attempts: 0, schema: RECORD_SCHEMA } },
      upsert,
    }));
    return writeTogether(
      this.#collection,
      { updates },
      WITHDRAWAL_DEADLINE_MS,
      WITHDRAWAL_MAJORITY_MS,
    );
  }

  #move(): MoveWrite {
    const now = this.#tools.clock.now();
    const retention = { withdrawn: this.#tools.retentionDays };
    const options = { ...this.#tools, now, reason: 'answered 500 while in doubt', retention };
    return moveOf('withdraw', {}, options)!;
  }

  /**
   * Settles what an earlier try withdrew, a request adopted or a worker claimed. Others were
   * inserted during the upsert, and are withdrawn in the next round.
   */
  async #settleExisting(records: readonly Doubtful[]): Promise<void> {
    if (records.length === 0) return;
    const ids = records.map(({ _id }) => _id);
    const found = await this.#collection
      .find(
        { _id: { $in: ids } },
        { projection: { state: 1, adopted: 1, version: 1 }, readConcern: 'majority', ...bounded },
      )
      .toArray();
    for (const { _id, state, adopted = false, version } of found) {
      const facts = { account: false, erased: false, claimed: version > 0, adopted };
      if (nextState(state, 'withdraw', facts) !== undefined) continue;
      const record = this.#pending.get(_id);
      if (record === undefined) continue;
      const result = state === 'withdrawn' ? 'withdrawn' : adopted ? 'adopted' : 'too_late';
      if (result === 'too_late') {
        this.#tools.log.error(
          logFields(record),
          'answered 500, but the record was already being processed',
        );
      }
      this.#settled(record, result);
    }
  }

  #settled(record: Doubtful, result: 'withdrawn' | 'adopted' | 'too_late'): void {
    this.#pending.delete(record._id);
    if (result === 'withdrawn') this.#move().done([record._id]);
    this.#tools.metrics.withdrawals.inc({ result });
  }
}

function logFields(record: Doubtful) {
  return { request_id: record._id, ...traceFields(record.traceparent) };
}
