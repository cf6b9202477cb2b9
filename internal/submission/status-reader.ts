/** Reads what a partner may see of its own request, within bounds. */
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

  /** Needs its own client, so that hanging reads cannot delay commits. */
  constructor(options: {
    readonly db: Db;
    readonly timeoutMs: number;
    readonly maxUnderWay: number;
  }) {
    this.#collection = submissionCollection(options.db);
    this.#timeoutMs = options.timeoutMs;
    this.#maxUnderWay = options.maxUnderWay;
  }

  /** One query, so that an unknown id takes as long as another partner's. */
  async read(requestId: string, partnerId: string): Promise<StatusRecord | undefined> {
    if (this.#underWay >= this.#maxUnderWay)
      throw new Error(`${this.#maxUnderWay} status look-ups are under way already`);
    this.#underWay += 1;
    try {
      // A failover must not roll back what a partner has read.
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
