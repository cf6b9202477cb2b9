/** Finds recorded applications that are due. */
import type { Collection } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { BACKLOG_TIMEOUT_MS, DUE_TIMEOUT_MS } from './limits.ts';
import { openStates } from './states.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from './submission.ts';

export type DueRecord = Pick<
  SubmissionRecord,
  '_id' | 'version' | 'dueAt' | 'claimedUntil' | 'firstSeenAt' | 'traceparent' | 'partnerId'
>;

const projection = {
  version: 1,
  dueAt: 1,
  claimedUntil: 1,
  firstSeenAt: 1,
  traceparent: 1,
  partnerId: 1,
};

export class DueRecords {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #clock: Clock;

  constructor(collection: Collection<SubmissionRecord>, clock: Clock) {
    this.#collection = collection;
    this.#clock = clock;
  }

  async find(limit: number, withoutPartners: readonly string[]): Promise<DueRecord[]> {
    return this.#collection
      .find(
        {
          state: 'recorded',
          dueAt: { $lte: this.#clock.now() },
          schema: { $lte: RECORD_SCHEMA },
          ...(withoutPartners.length === 0 ? {} : { partnerId: { $nin: [...withoutPartners] } }),
        },
        { projection, maxTimeMS: DUE_TIMEOUT_MS },
      )
      .sort({ dueAt: 1 })
      .limit(limit)
      .batchSize(limit)
      .toArray();
  }

  async countUnknown(limit: number): Promise<number> {
    const due = { $lte: this.#clock.now() };
    const options = { limit, maxTimeMS: BACKLOG_TIMEOUT_MS };
    const counts = await Promise.all([
      this.#collection.countDocuments({ state: { $nin: [...openStates] }, dueAt: due }, options),
      this.#collection.countDocuments(
        { state: { $in: [...openStates] }, dueAt: due, schema: { $gt: RECORD_SCHEMA } },
        options,
      ),
    ]);
    return Math.min(
      limit,
      counts.reduce((sum, count) => sum + count, 0),
    );
  }
}
