/**
 * Reads what a partner may know of one of its own requests, within a time and a number of reads at
 * once.
 */
import type { Collection, Db } from 'mongodb';
import { withDeadline } from '../platform/deadline.ts';
import { submissionCollection, type SubmissionRecord } from './submission.ts';

export type StatusRecord = Pick<
  SubmissionRecord,
  '_id' | 'receivedAt' | 'state' | 'stateAt' | 'reasons'
>;

export class StatusReader {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #timeoutMs: number;
  readonly #maxUnderWay: number;
  #underWay = 0;

  /**
   * `db` should belong to a client of its own, so that hanging reads hold no connection that others
   * need.
   */
  constructor(options: {
    readonly db: Db;
    readonly timeoutMs: number;
    readonly maxUnderWay: number;
  }) {
    this.#collection = submissionCollection(options.db);
    this.#timeoutMs = options.timeoutMs;
    this.#maxUnderWay = options.maxUnderWay;
  }

  /**
   * The record, or undefined when there is none or it is another partner's: the database tells
   * neither apart, so both take the same time. Rejects when too many reads are under way or the
   * answer takes longer than the time-out.
   */
  async read(requestId: string, partnerId: string): Promise<StatusRecord | undefined> {
    if (this.#underWay >= this.#maxUnderWay)
      throw new Error(`${this.#maxUnderWay} status look-ups are under way already`);
    this.#underWay += 1;
    try {
      // Majority: what a partner has been told must not be rolled back by a failover.
      const found = this.#collection.findOne(
        { _id: requestId, partnerId },
        {
          readConcern: 'majority',
          projection: { receivedAt: 1, state: 1, stateAt: 1, reasons: 1 },
        },
      );
      return (await withDeadline(found, this.#timeoutMs, 'reading a status')) ?? undefined;
    } finally {
      this.#underWay -= 1;
    }
  }
}
