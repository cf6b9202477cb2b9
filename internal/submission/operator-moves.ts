/** Operators' changes to a record: reopen, claim, hurry, correct, erase. */
import type { Collection, Db } from 'mongodb';
import { defined } from '../platform/defined.ts';
import { later, type Clock } from '../platform/clock.ts';
import { isDuplicateKey, updateInOrder } from '../platform/mongo.ts';
import { CLAIM_MS } from './limits.ts';
import { entryOf, moveOf, touchOf, type RecordUpdate, type Step } from './move-of.ts';
import {
  isOpen,
  type OpenState,
  type OperatorEvent,
  type ReopeningEvent,
  type RetentionDays,
  type State,
  type Touch,
} from './states.ts';
import { submissionCollection, type SubmissionRecord } from './submission.ts';

/** A move does nothing if the record has changed since. */
export type Seen = Pick<SubmissionRecord, '_id' | 'state' | 'version' | 'accountId'>;

export interface PlannedMove {
  readonly seen: Seen;
  readonly to: State;
  readonly accountId: string | undefined;
}

export class OperatorMoves {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #retention: RetentionDays;
  readonly #clock: Clock;

  constructor(options: {
    readonly db: Db;
    readonly retention: RetentionDays;
    readonly clock: Clock;
  }) {
    this.#collection = submissionCollection(options.db);
    this.#retention = options.retention;
    this.#clock = options.clock;
  }

  /** `accountId` is the account that this request created. */
  async reopen(
    seen: Seen,
    event: ReopeningEvent,
    options: { readonly accountId: string | undefined; readonly reason: string },
  ): Promise<OpenState | 'no_such_move' | 'changed'> {
    const { accountId, reason } = options;
    const move = this.#moveOf(event, seen, accountId !== undefined, reason);
    if (move === undefined || !isOpen(move.to)) return 'no_such_move';
    return (await this.#move(seen, move, defined({ accountId }))) ? move.to : 'changed';
  }

  /** Recreates an account's expired record for a new e-mail, as if received now. */
  async remake(record: SubmissionRecord, reason: string): Promise<'account_created' | 'changed'> {
    const state = 'account_created';
    const now = this.#clock.now();
    const { $set, $push } = entryOf(state, { now, reason, retention: this.#retention });
    const made = { receivedAt: now, mailsSince: record.version, history: [$push.history] };
    try {
      await this.#collection.insertOne({ ...record, ...$set, ...made });
      return state;
    } catch (error) {
      if (isDuplicateKey(error)) return 'changed';
      throw error;
    }
  }

  async reportBounce(seen: Seen, reason: string): Promise<boolean> {
    const move = this.#moveOf('report_bounce', seen, true, reason);
    if (move === undefined) return false;
    return this.#move(seen, move, { bouncedAt: move.update.$set.stateAt!, lastError: reason });
  }

  /** Returns how many were moved to where it was planned. */
  async moveAll(
    event: OperatorEvent,
    items: readonly PlannedMove[],
    reason: string,
  ): Promise<number> {
    const alike = Map.groupBy(items, ({ seen, to, accountId }) =>
      [seen.state, seen.version, to, seen.accountId, accountId].join(' '),
    );
    const updates = [...alike.values()].flatMap((group) => {
      const [{ seen, to, accountId }] = group as [PlannedMove, ...PlannedMove[]];
      const move = this.#moveOf(event, seen, accountId !== undefined, reason);
      if (move?.to !== to) return [];
      const { filter: q, update } = move;
      const u = { ...update, $set: { ...update.$set, ...defined({ accountId }) } };
      return [{ ids: group.map((item) => item.seen._id), q, u }];
    });
    return updateInOrder(this.#collection, updates);
  }

  async claim(seen: Seen): Promise<Seen | undefined> {
    const until = later(this.#clock.now(), CLAIM_MS);
    const version = seen.version + 1;
    const claimed = await this.#touch('take', seen, {
      $set: { dueAt: until, claimedUntil: until, version },
      $unset: { firstSeenAt: true },
    });
    return claimed ? { ...seen, version } : undefined;
  }

  /** False if the record has changed or a worker may be sending its e-mail. */
  async hurry(seen: Seen): Promise<boolean> {
    return this.#touch('hurry', seen, {
      $set: { dueAt: this.#clock.now(), version: seen.version + 1 },
      $unset: { claimedUntil: true, firstSeenAt: true, crashes: true },
    });
  }

  /** Removes the digest too, because it would confirm a guessed address. */
  async erase(seen: Seen, reason: string): Promise<boolean> {
    const move = this.#moveOf('erase', seen, false, reason);
    if (move === undefined) return false;
    const { bodyUntil: _none, ...$set } = move.update.$set;
    const personal = {
      body: true,
      bodyUntil: true,
      bodySha256: true,
      userAgent: true,
      applicant: true,
    } as const;
    const update = { ...move.update, $set, $unset: { ...move.update.$unset, ...personal } };
    return this.#move(seen, { ...move, update }, { erasedAt: this.#clock.now() });
  }

  /** Keeps the digest, so that a repeated request gets the same answer. */
  async eraseBody(seen: Seen): Promise<boolean> {
    return this.#touch('erase_body', seen, { $unset: { body: true, bodyUntil: true } });
  }

  async correctEmail(requestId: string, email: string): Promise<void> {
    await this.#collection.updateOne(
      { _id: requestId, ...touchOf('correct_email', {}, this.#clock.now()) },
      { $set: { 'applicant.email': email } },
    );
  }

  #moveOf(event: OperatorEvent, seen: Seen, account: boolean, reason: string): Step | undefined {
    return moveOf(event, seen, {
      now: this.#clock.now(),
      account,
      reason,
      retention: this.#retention,
    });
  }

  async #move(
    { _id }: Seen,
    { filter, update }: Step,
    fields: Partial<SubmissionRecord>,
  ): Promise<boolean> {
    const { matchedCount } = await this.#collection.updateOne(
      { _id, ...filter },
      { ...update, $set: { ...update.$set, ...fields } },
    );
    return matchedCount === 1;
  }

  async #touch(touch: Touch, seen: Seen, update: Partial<RecordUpdate>): Promise<boolean> {
    const filter = touchOf(touch, seen, this.#clock.now());
    if (filter === undefined) return false;
    const { matchedCount } = await this.#collection.updateOne({ _id: seen._id, ...filter }, update);
    return matchedCount === 1;
  }
}
