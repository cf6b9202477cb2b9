/** Removes raw bodies whose time is over; their length and digest stay. No index can delete one field, so this does. */
import type { Collection, Db } from 'mongodb';
import { legible } from '../application/legible.ts';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { updateInOrder } from '../platform/mongo.ts';
import { bounded } from '../platform/mongo-read.ts';
import { BODY_EXPIRY_PAGE, BODY_PAGE } from './limits.ts';
import { submissionCollection, type SubmissionRecord } from './submission.ts';

export class BodyExpiry {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #bodyMs: number;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly bodyDays: number; readonly clock: Clock }) {
    this.#collection = submissionCollection(options.db);
    this.#bodyMs = options.bodyDays * DAY_MS;
    this.#clock = options.clock;
  }

  /** One page; true when more may be due. Several processors may do the same page: each update is idempotent. */
  async removeDue(): Promise<boolean> {
    const now = this.#clock.now();
    const looked = await this.#lookAtMalformed(now);
    const over = await this.#collection
      .find(
        { bodyUntil: { $lte: now }, state: { $nin: ['recorded', 'malformed'] } },
        { projection: { _id: 1 }, ...bounded },
      )
      .sort({ bodyUntil: 1 })
      .limit(BODY_EXPIRY_PAGE)
      .toArray();
    await this.#remove(
      over.map(({ _id }) => _id),
      now,
    );
    return looked === BODY_PAGE || over.length === BODY_EXPIRY_PAGE;
  }

  /** A malformed body is kept as long as any other if it can be searched for a person, and removed at first sight if not. */
  async #lookAtMalformed(now: Date): Promise<number> {
    const due = await this.#collection
      .find({ bodyUntil: { $lte: now }, state: 'malformed' }, { projection: { stateAt: 1, body: 1 }, ...bounded })
      .sort({ bodyUntil: 1 })
      .limit(BODY_PAGE)
      .toArray();
    const stays = due.filter(({ stateAt, body }) => {
      return later(stateAt, this.#bodyMs) > now && legible(body?.buffer ?? new Uint8Array()).unreadable === undefined;
    });
    if (stays.length > 0) {
      await updateInOrder(
        this.#collection,
        stays.map(({ _id, stateAt }) => ({
          ids: [_id],
          q: { bodyUntil: { $lte: now } },
          u: { $set: { bodyUntil: later(stateAt, this.#bodyMs) } },
        })),
      );
    }
    await this.#remove(
      due.filter((record) => !stays.includes(record)).map(({ _id }) => _id),
      now,
    );
    return due.length;
  }

  async #remove(ids: readonly string[], now: Date): Promise<void> {
    if (ids.length === 0) return;
    const u = { $unset: { body: true, bodyUntil: true } };
    await updateInOrder(this.#collection, [{ ids, q: { bodyUntil: { $lte: now } }, u }]);
  }
}
