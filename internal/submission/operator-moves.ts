/** What an operator may do to a record besides reopening it: hold it, hurry it, correct it, remove what is personal. */
import type { Collection } from 'mongodb';
import { later, type Clock } from '../platform/clock.ts';
import { moveUpdate } from './move-update.ts';
import { nextState, type RetentionDays } from './states.ts';
import { CLAIM_MS } from './submission-store.ts';
import type { SubmissionRecord } from './submission.ts';

/** A record as an operator saw it: whoever changed it since, wins. */
export type Seen = Pick<SubmissionRecord, '_id' | 'state' | 'version'>;

export class OperatorMoves {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #retention: RetentionDays;
  readonly #clock: Clock;

  constructor(options: {
    readonly collection: Collection<SubmissionRecord>;
    readonly retention: RetentionDays;
    readonly clock: Clock;
  }) {
    this.#collection = options.collection;
    this.#retention = options.retention;
    this.#clock = options.clock;
  }

  /** Takes an open record from the workers for the time of a claim; undefined when it is no longer as it was seen. */
  async hold(seen: Seen): Promise<Seen | undefined> {
    return this.#takeOver(seen, CLAIM_MS);
  }

  /**
   * Makes an open record due at once, as a retry of what only waits; false when it is no longer as it was seen. The new
   * version lets the hint of now be added beside the delayed one, and takes the record from whoever holds a claim.
   */
  async hurry(seen: Seen): Promise<boolean> {
    return (await this.#takeOver(seen, 0)) !== undefined;
  }

  /**
   * Removes what is personal: the body with its digest (guessable: nine digits and a known address), the applicant, what
   * the caller said of itself. A record with work ahead ends `rejected`, because there is nothing left to work on. False
   * when it is no longer as it was seen.
   */
  async erase(seen: Seen, reason: string): Promise<boolean> {
    const now = this.#clock.now();
    const to = nextState(seen.state, 'erase', { account: false, claimed: seen.version > 0, erased: false });
    const move =
      to === undefined || to === seen.state
        ? { $set: {}, $unset: {} }
        : moveUpdate(to, { now, attempt: 0, reason, dueInMs: 0, retention: this.#retention });
    const result = await this.#collection.updateOne(asSeen(seen), {
      ...move,
      $set: { ...move.$set, erasedAt: now, version: seen.version + 1 },
      $unset: { ...move.$unset, body: true, bodySha256: true, userAgent: true, applicant: true },
    });
    return result.matchedCount === 1;
  }

  /** Removes the body and its digest of a settled record that is about someone else; false as above. */
  async eraseBody(seen: Seen): Promise<boolean> {
    const result = await this.#collection.updateOne(asSeen(seen), { $unset: { body: true, bodySha256: true } });
    return result.matchedCount === 1;
  }

  /** Keeps the applicant in step with a corrected address, so that it is found by the new one. */
  async correctEmail(requestId: string, email: string): Promise<void> {
    await this.#collection.updateOne(
      { _id: requestId, applicant: { $exists: true } },
      { $set: { 'applicant.email': email } },
    );
  }

  async #takeOver(seen: Seen, dueInMs: number): Promise<Seen | undefined> {
    const version = seen.version + 1;
    const dueAt = later(this.#clock.now(), dueInMs);
    const result = await this.#collection.updateOne(asSeen(seen), {
      $set: { dueAt, heldUntil: dueAt, version },
      $unset: { firstSeenAt: true },
    });
    return result.matchedCount === 1 ? { ...seen, version } : undefined;
  }
}

function asSeen(seen: Seen) {
  return { _id: seen._id, state: seen.state, version: seen.version };
}
