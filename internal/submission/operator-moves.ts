/** Operators' changes to a record: reopen, claim, hurry, correct, erase. */
import type { Collection, Db } from 'mongodb';
import { discardedReason } from '../application/reasons.ts';
import { defined } from '../platform/defined.ts';
import { later, type Clock } from '../platform/clock.ts';
import { isDuplicateKey, requireDurable, updateInOrder } from '../platform/mongo.ts';
import { moveUpdate } from './move-update.ts';
import { CLAIM_MS } from './limits.ts';
import {
  isOpen,
  nextState,
  type OpenState,
  type ReopeningEvent,
  type RetentionDays,
  type State,
} from './states.ts';
import { RECORD_SCHEMA, submissionCollection, type SubmissionRecord } from './submission.ts';

/** A move does nothing if the record has changed since. */
export type Seen = Pick<SubmissionRecord, '_id' | 'state' | 'version'>;

export interface PlannedMove {
  readonly seen: Seen & Pick<SubmissionRecord, 'accountId'>;
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

  /**
   * The new version makes a worker's late writes fail. `accountId` is the account that this request
   * created.
   */
  async reopen(
    record: Seen & Pick<SubmissionRecord, 'erasedAt'>,
    event: ReopeningEvent,
    options: { readonly accountId: string | undefined; readonly reason: string },
  ): Promise<OpenState | 'no_such_move' | 'changed'> {
    const { _id, state, version } = record;
    const { accountId, reason } = options;
    const facts = {
      account: accountId !== undefined,
      claimed: version > 0,
      erased: record.erasedAt !== undefined,
    };
    const to = nextState(state, event, facts);
    if (to === undefined || !isOpen(to)) return 'no_such_move';
    const update = this.#moveTo(to, record, this.#clock.now(), reason);
    const account = to === 'account_created' && accountId !== undefined ? { accountId } : {};
    const { matchedCount } = await this.#collection.updateOne(
      { _id, state, version, erasedAt: { $exists: false }, schema: { $lte: RECORD_SCHEMA } },
      { ...update, $set: { ...update.$set, ...account } },
    );
    return matchedCount === 1 ? to : 'changed';
  }

  /** Recreates an account's expired record for a new e-mail, as if received now. */
  async remake(record: SubmissionRecord, reason: string): Promise<'account_created' | 'changed'> {
    const now = this.#clock.now();
    const state = 'account_created';
    const history = [{ state, at: now, attempt: 0, reason }] as const;
    try {
      const made = {
        receivedAt: now,
        state,
        stateAt: now,
        dueAt: now,
        history,
        mailsSince: record.version,
      } as const;
      await this.#collection.insertOne({ ...record, ...made });
      return state;
    } catch (error) {
      if (isDuplicateKey(error)) return 'changed';
      throw error;
    }
  }

  async reportBounce(
    record: Seen & Pick<SubmissionRecord, 'erasedAt'>,
    reason: string,
  ): Promise<boolean> {
    const facts = { account: true, claimed: true, erased: record.erasedAt !== undefined };
    const to = nextState(record.state, 'report_bounce', facts);
    if (to === undefined) return false;
    const now = this.#clock.now();
    const move = this.#moveTo(to, record, now, reason);
    const result = await this.#collection.updateOne(asSeen(record), {
      ...move,
      $set: { ...move.$set, bouncedAt: now, lastError: reason },
    });
    return result.matchedCount === 1;
  }

  /** Leaves claimed records, because their workers may be creating accounts. */
  async moveAll(items: readonly PlannedMove[], reason: string): Promise<number> {
    const now = this.#clock.now();
    const newAccount = ({ seen, accountId }: PlannedMove) =>
      accountId === seen.accountId ? undefined : accountId;
    const alike = Map.groupBy(items, (item) =>
      [item.seen.state, item.seen.version, item.to, newAccount(item)].join(' '),
    );
    const updates = [...alike.values()].map((group) => {
      const [one] = group as [PlannedMove, ...PlannedMove[]];
      const { seen, to } = one;
      const move = this.#moveTo(to, seen, now, reason);
      const accountId = newAccount(one);
      const account = accountId === undefined ? {} : { accountId };
      const free = { $or: [{ claimedUntil: { $exists: false } }, { claimedUntil: { $lte: now } }] };
      return {
        ids: group.map((item) => item.seen._id),
        q: {
          state: seen.state,
          version: seen.version,
          erasedAt: { $exists: false },
          schema: { $lte: RECORD_SCHEMA },
          ...(isOpen(seen.state) ? free : {}),
        },
        u: { ...move, $set: { ...move.$set, ...account } },
      };
    });
    return requireDurable(await updateInOrder(this.#collection, updates)).n;
  }

  async claim(seen: Seen): Promise<Seen | undefined> {
    const version = seen.version + 1;
    const until = later(this.#clock.now(), CLAIM_MS);
    const result = await this.#collection.updateOne(asSeen(seen), {
      $set: { dueAt: until, claimedUntil: until, version },
      $unset: { firstSeenAt: true },
    });
    return result.matchedCount === 1 ? { ...seen, version } : undefined;
  }

  /** False if the record has changed or a worker may be sending its e-mail. */
  async hurry(seen: Seen): Promise<boolean> {
    const now = this.#clock.now();
    const free = [{ claimedUntil: { $exists: false } }, { claimedUntil: { $lte: now } }];
    const result = await this.#collection.updateOne(
      { ...asSeen(seen), $or: free },
      {
        $set: { dueAt: now, version: seen.version + 1 },
        $unset: { claimedUntil: true, firstSeenAt: true, crashes: true },
      },
    );
    return result.matchedCount === 1;
  }

  /** Removes the digest too, because it would confirm a guessed address. */
  async erase(seen: Seen, reason: string): Promise<boolean> {
    const now = this.#clock.now();
    const to = nextState(seen.state, 'erase', {
      account: false,
      claimed: seen.version > 0,
      erased: false,
    });
    const stays = to === undefined || to === seen.state;
    const move = stays ? undefined : this.#moveTo(to, seen, now, reason);
    const { bodyUntil: _none, ...set } = move?.$set ?? {};
    const result = await this.#collection.updateOne(asSeen(seen), {
      $set: { ...set, erasedAt: now, version: seen.version + 1 },
      $unset: {
        ...move?.$unset,
        body: true,
        bodyUntil: true,
        bodySha256: true,
        userAgent: true,
        applicant: true,
      },
      ...defined({ $push: move?.$push }),
    });
    return result.matchedCount === 1;
  }

  /** Keeps the digest, so that a repeated request gets the same answer. */
  async eraseBody(seen: Seen): Promise<boolean> {
    const result = await this.#collection.updateOne(asSeen(seen), {
      $unset: { body: true, bodyUntil: true },
    });
    return result.matchedCount === 1;
  }

  async correctEmail(requestId: string, email: string): Promise<void> {
    await this.#collection.updateOne(
      { _id: requestId, erasedAt: { $exists: false } },
      { $set: { 'applicant.email': email } },
    );
  }

  #moveTo(to: State, seen: Pick<Seen, 'version'>, now: Date, reason: string) {
    const moved = moveUpdate(to, {
      now,
      attempt: 0,
      reason,
      dueInMs: 0,
      retention: this.#retention,
    });
    const { $set, ...move } = moved;
    const version = seen.version + 1;
    return {
      ...move,
      $set: {
        ...$set,
        version,
        ...(isOpen(to) ? { mailsSince: version } : {}),
        // The operator's own reason may name a person.
        ...(to === 'rejected' ? { reasons: [discardedReason] } : {}),
      },
    };
  }
}

function asSeen(seen: Seen) {
  return { _id: seen._id, state: seen.state, version: seen.version };
}
