/** Reading and moving records after the door: claims, renewals and moves, each one conditional update. */
import type { Collection, UpdateFilter } from 'mongodb';
import { later, type Clock } from '../platform/clock.ts';
import { updateTogether } from '../platform/mongo.ts';
import {
  FIRST_DUE_MS,
  RECORD_SCHEMA,
  openStates,
  type Applicant,
  type FinalState,
  type OpenState,
  type State,
  type SubmissionRecord,
} from './submission.ts';
import type { Reason } from '../application/reasons.ts';

/** A claim holds this long unless renewed; so long a killed worker's record waits for reconcile. */
export const CLAIM_MS = 45_000;
/** A round of reconcile that is not answered by then starts afresh. */
const LOOK_AGAIN_DEADLINE_MS = 10_000;
const DAY_MS = 86_400_000;

/** The position of a record that a move starts from: whoever holds another version has lost it. */
export interface Position {
  readonly requestId: string;
  readonly state: OpenState;
  readonly version: number;
}

/** What a move may set besides the state. */
export interface Changes {
  readonly applicant?: Applicant;
  readonly reasons?: readonly Reason[];
  readonly accountId?: string;
  readonly attempts?: number;
  readonly ambiguous?: number;
  readonly lastError?: string;
  readonly reason?: string;
}

/** What reconcile needs of an overdue record. */
export type DueRecord = Pick<SubmissionRecord, '_id' | 'state' | 'version' | 'dueAt' | 'firstSeenAt' | 'traceparent'>;

/** Days each final state is kept. `dead_lettered` has no entry: it is never deleted. */
export type Retention = Readonly<
  Record<Exclude<FinalState, 'dead_lettered' | 'malformed' | 'refused' | 'withdrawn'>, number>
>;

export class SubmissionStore {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #retention: Retention;
  readonly #clock: Clock;

  constructor(options: {
    readonly collection: Collection<SubmissionRecord>;
    readonly retention: Retention;
    readonly clock: Clock;
  }) {
    this.#collection = options.collection;
    this.#retention = options.retention;
    this.#clock = options.clock;
  }

  /** Takes the record for `CLAIM_MS`, as of `version`; undefined when another claim or move came first. */
  async claim(requestId: string, version: number): Promise<SubmissionRecord | undefined> {
    const claimed = await this.#collection.findOneAndUpdate(
      { _id: requestId, version, state: { $in: [...openStates] }, schema: { $lte: RECORD_SCHEMA } },
      { $set: { version: version + 1, dueAt: later(this.#clock.now(), CLAIM_MS) } },
      { returnDocument: 'after' },
    );
    return claimed ?? undefined;
  }

  /** Holds the claim for another `CLAIM_MS`; false when it is lost. */
  async renew(position: Position): Promise<boolean> {
    return this.#update(position, { $set: { dueAt: later(this.#clock.now(), CLAIM_MS) } });
  }

  /** Moves to `to` and appends to the history; false when the record is not where `position` says (a repeat). */
  async move(position: Position, to: State, attempt: number, changes: Changes = {}): Promise<boolean> {
    const now = this.#clock.now();
    const { reason, ...fields } = changes;
    const history = { state: to, at: now, attempt, ...(reason === undefined ? {} : { reason }) };
    const open = to === 'recorded' || to === 'account_created';
    const expiresAt = this.#expiry(to, now);
    const update: UpdateFilter<SubmissionRecord> = {
      $set: {
        state: to,
        stateAt: now,
        ...fields,
        ...(open ? { dueAt: later(now, FIRST_DUE_MS), attempts: 0, ambiguous: 0 } : {}),
        ...(expiresAt === undefined ? {} : { expiresAt }),
      },
      $push: { history },
      ...(open ? {} : { $unset: { dueAt: true } }),
    };
    return this.#update(position, update);
  }

  /** Sets when the record is worked on next; `attempts` and `ambiguous` count what the back-off should see. */
  async postpone(
    position: Position,
    next: {
      readonly delayMs: number;
      readonly attempts: number;
      readonly ambiguous: number;
      readonly lastError: string;
    },
  ): Promise<boolean> {
    const { delayMs, ...fields } = next;
    return this.#update(position, { $set: { dueAt: later(this.#clock.now(), delayMs), ...fields } });
  }

  /** Records of `state` whose time has come, oldest first, at most `limit`; those of a newer schema are left out. */
  async findDue(state: OpenState, limit: number): Promise<DueRecord[]> {
    return this.#collection
      .find(
        { state, dueAt: { $lte: this.#clock.now() }, schema: { $lte: RECORD_SCHEMA } },
        { projection: { state: 1, version: 1, dueAt: 1, firstSeenAt: 1, traceparent: 1 } },
      )
      .sort({ dueAt: 1 })
      .limit(limit)
      .toArray();
  }

  /** Due records that this version does not understand: a newer schema or an unknown state. Counts up to `limit`. */
  async countUnknownDue(limit: number): Promise<number> {
    return this.#collection.countDocuments(
      {
        dueAt: { $lte: this.#clock.now() },
        $or: [{ schema: { $gt: RECORD_SCHEMA } }, { state: { $nin: [...openStates] } }],
      },
      { limit },
    );
  }

  /** Moves the due date of records that are still as they were seen; `firstSeen` marks never-claimed ones as known. */
  async lookAgain(
    records: readonly DueRecord[],
    delayMs: number,
    options: { readonly firstSeen: boolean },
  ): Promise<void> {
    if (records.length === 0) return;
    const now = this.#clock.now();
    await updateTogether(
      this.#collection,
      records.map(({ _id, version, dueAt }) => ({
        q: { _id, version, ...(dueAt === undefined ? {} : { dueAt }) },
        u: { $set: { dueAt: later(now, delayMs), ...(options.firstSeen ? { firstSeenAt: now } : {}) } },
      })),
      LOOK_AGAIN_DEADLINE_MS,
    );
  }

  async read(requestId: string): Promise<SubmissionRecord | undefined> {
    return (await this.#collection.findOne({ _id: requestId })) ?? undefined;
  }

  async #update(position: Position, update: UpdateFilter<SubmissionRecord>): Promise<boolean> {
    const { requestId, state, version } = position;
    const result = await this.#collection.updateOne({ _id: requestId, state, version }, update);
    return result.matchedCount === 1;
  }

  #expiry(state: State, now: Date): Date | undefined {
    const days = state in this.#retention ? this.#retention[state as keyof Retention] : undefined;
    return days === undefined ? undefined : later(now, days * DAY_MS);
  }
}
