/** Reads what a partner may see of its own requests. */
import type { Collection, Db } from 'mongodb';
import { withDeadline } from '../platform/deadline.ts';
import { submissionCollection, type SubmissionRecord } from './submission.ts';

const shown = { partnerId: 1, receivedAt: 1, state: 1, stateAt: 1, reasons: 1 } as const;
export type StatusRecord = Pick<SubmissionRecord, '_id' | keyof typeof shown>;

export class StatusReader {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #timeoutMs: number;

  /** Needs its own client, so that hanging reads cannot delay commits. */
  constructor(options: { readonly db: Db; readonly timeoutMs: number }) {
    this.#collection = submissionCollection(options.db);
    this.#timeoutMs = options.timeoutMs;
  }

  /** Requests of all partners: an unknown id takes as long as another partner's. */
  async read(requestIds: readonly string[]): Promise<readonly StatusRecord[]> {
    // A failover must not roll back what a partner has read.
    const found = this.#collection
      .find({ _id: { $in: requestIds } }, { readConcern: 'majority', projection: shown })
      .toArray();
    return withDeadline(found, this.#timeoutMs, 'reading statuses');
  }
}
