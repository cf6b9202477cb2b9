/** Finds the recorded applications that are due, and what this version does not understand. */
import type { Collection } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { BACKLOG_TIMEOUT_MS, DUE_TIMEOUT_MS } from './limits.ts';
import { openStates } from './states.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from './submission.ts';

/** What reconcile needs of a due record. */
export type DueRecord = Pick<
  SubmissionRecord,
  '_id' | 'version' | 'dueAt' | 'heldUntil' | 'firstSeenAt' | 'traceparent' | 'partnerId'
>;

const projection = {
  version: 1,
  dueAt: 1,
  heldUntil: 1,
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

  /**
   * The oldest due records in `recorded`, at most `limit`, but none of these partners or of a newer
   * schema.
   */
  async find(limit: number, withoutPartners: readonly string[]): Promise<DueRecord[]> {
    return (
      this.#collection
        .find(
          {
            state: 'recorded',
            dueAt: { $lte: this.#clock.now() },
            schema: { $lte: RECORD_SCHEMA },
            // In the index requests_due as well, so what partners on hold have sent costs no
            // document.
            ...(withoutPartners.length === 0 ? {} : { partnerId: { $nin: [...withoutPartners] } }),
          },
          { projection, maxTimeMS: DUE_TIMEOUT_MS },
        )
        // Index requests_due, read in its order: no sort in memory, however long the backlog.
        .sort({ dueAt: 1 })
        .limit(limit)
        .batchSize(limit)
        .toArray()
    );
  }

  /**
   * Due records that this version does not understand: an unknown state, or a newer schema. Counts
   * up to `limit`.
   */
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
