/** Reading and moving records after the door: claims, renewals and moves, each one conditional update. */
import type { Collection, UpdateFilter } from 'mongodb';
import { Batcher, type Outcome } from '../platform/batcher.ts';
import { later, type Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import {
  databaseSpan,
  pastLockConflicts,
  updateTogether,
  type UpdateItem,
  type WriteReply,
} from '../platform/mongo.ts';
import { inSpan } from '../platform/tracing.ts';
import { moveUpdate } from './move-update.ts';
import {
  isOpen,
  nextState,
  openStates,
  type OpenState,
  type ProcessorEvent,
  type ReopeningEvent,
  type RetentionDays,
  type State,
} from './states.ts';
import { FIRST_DUE_MS, RECORD_SCHEMA, type Applicant, type SubmissionRecord } from './submission.ts';
import type { Reason } from '../application/reasons.ts';

/** A claim holds this long unless renewed; so long a killed worker's record waits for reconcile. */
export const CLAIM_MS = 45_000;
/** What a processor's workers do at the same time shares a command; two under way keep the database and us both busy. */
const TOGETHER = { maxItems: 100, maxInFlight: 2 } as const;
const WRITE_DEADLINE_MS = 10_000;

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

interface Wanted {
  readonly requestId: string;
  readonly version: number;
}

interface PositionedUpdate {
  readonly position: Position;
  readonly update: UpdateFilter<SubmissionRecord>;
  /** The state it leads to. */
  readonly to: State;
}

export class SubmissionStore {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #retention: RetentionDays;
  readonly #clock: Clock;
  readonly #claims = new Batcher<Wanted, SubmissionRecord | undefined>({
    run: (wanted) => this.#claimTogether(wanted),
    ...TOGETHER,
  });
  readonly #updates = new Batcher<PositionedUpdate, boolean>({
    run: (items) => this.#updateTogether(items),
    ...TOGETHER,
  });

  constructor(options: {
    readonly collection: Collection<SubmissionRecord>;
    readonly retention: RetentionDays;
    readonly clock: Clock;
  }) {
    this.#collection = options.collection;
    this.#retention = options.retention;
    this.#clock = options.clock;
  }

  /**
   * Takes the record for `CLAIM_MS`, as of `version`; undefined when another claim or move came first, or while a claim
   * holds: a hint that reconcile sent for a worker believed dead must not take the record from one that woke up and
   * renewed in time. Claims that are asked for at the same time share one update and one query.
   */
  claim(requestId: string, version: number): Promise<SubmissionRecord | undefined> {
    return this.#claims.call({ requestId, version });
  }

  async #claimTogether(wanted: readonly Wanted[]): Promise<Outcome<SubmissionRecord | undefined>[]> {
    // An update tells how many records it changed, but not which: those bear this mark.
    const claimedBy = newId('claim');
    const now = this.#clock.now();
    const until = later(now, CLAIM_MS);
    const { n } = await this.#writeInOrder(
      wanted.map(({ requestId, version }) => ({
        q: {
          _id: requestId,
          version,
          state: { $in: [...openStates] },
          schema: { $lte: RECORD_SCHEMA },
          $or: [{ heldUntil: { $exists: false } }, { heldUntil: { $lte: now } }],
        },
        u: { $set: { version: version + 1, dueAt: until, heldUntil: until, claimedBy } },
      })),
    );
    const ids = wanted.map(({ requestId }) => requestId);
    const found = n === 0 ? [] : await this.#collection.find({ _id: { $in: ids }, claimedBy }).toArray();
    const claimed = new Map(found.map((record) => [record._id, record]));
    return wanted.map(({ requestId, version }) => {
      const record = claimed.get(requestId);
      if (record?.version !== version + 1) return { result: undefined };
      // Two hints of one record may meet here; only one of them gets it.
      claimed.delete(requestId);
      return { result: record };
    });
  }

  /** Holds the claim for another `CLAIM_MS`; false when it is lost. */
  async renew(position: Position): Promise<boolean> {
    const until = later(this.#clock.now(), CLAIM_MS);
    return this.#update(position, { $set: { dueAt: until, heldUntil: until } });
  }

  /** Makes the move of `event`: the new state, or undefined when the record is not where `position` says (a repeat). */
  async move(
    position: Position,
    event: ProcessorEvent,
    attempt: number,
    changes: Changes = {},
  ): Promise<State | undefined> {
    const to = nextState(position.state, event, { account: false, claimed: true, erased: false });
    if (to === undefined) throw new NoSuchMoveError(`${event} does not lead away from ${position.state}`);
    const { reason, ...fields } = changes;
    const update = moveUpdate(to, {
      now: this.#clock.now(),
      attempt,
      reason,
      dueInMs: FIRST_DUE_MS,
      retention: this.#retention,
    });
    const span = databaseSpan('update', this.#collection, { 'partner_ingest.state': to });
    const moved = await inSpan(span, () =>
      this.#update(position, { ...update, $set: { ...fields, ...update.$set } }, to),
    );
    return moved ? to : undefined;
  }

  /**
   * Opens a record again as an operator wants it, as it was read; the open state it is in then, `no_such_move`, or
   * `changed` when it is no longer as it was read. `accountId` names the account this request made, if there is one.
   *
   * The new version takes the record from whoever still believes to hold it, and lets no late write of theirs land on the
   * new round of work. It is due at once: reconcile queues it within seconds, Redis or not.
   */
  async reopen(
    record: Pick<SubmissionRecord, '_id' | 'state' | 'version' | 'erasedAt'>,
    event: ReopeningEvent,
    options: { readonly accountId: string | undefined; readonly reason: string },
  ): Promise<OpenState | 'no_such_move' | 'changed'> {
    const { _id, state, version } = record;
    const { accountId, reason } = options;
    const facts = { account: accountId !== undefined, claimed: version > 0, erased: record.erasedAt !== undefined };
    const to = nextState(state, event, facts);
    if (to === undefined || !isOpen(to)) return 'no_such_move';
    const update = moveUpdate(to, {
      now: this.#clock.now(),
      attempt: 0,
      reason,
      dueInMs: 0,
      retention: this.#retention,
    });
    const account = to === 'account_created' && accountId !== undefined ? { accountId } : {};
    const { matchedCount } = await this.#collection.updateOne(
      { _id, state, version, erasedAt: { $exists: false }, schema: { $lte: RECORD_SCHEMA } },
      { ...update, $set: { ...update.$set, ...account, version: version + 1 } },
    );
    return matchedCount === 1 ? to : 'changed';
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
    return this.#update(position, {
      $set: { dueAt: later(this.#clock.now(), delayMs), ...fields },
      $unset: { heldUntil: true },
    });
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
    await this.#writeInOrder(
      records.map(({ _id, version, dueAt }) => ({
        q: { _id, version, ...(dueAt === undefined ? {} : { dueAt }) },
        u: { $set: { dueAt: later(now, delayMs), ...(options.firstSeen ? { firstSeenAt: now } : {}) } },
      })),
    );
  }

  async read(requestId: string): Promise<SubmissionRecord | undefined> {
    return (await this.#collection.findOne({ _id: requestId })) ?? undefined;
  }

  /** True when the record was at `position`, and is in `to` now. Updates that come at the same time share a write. */
  #update(position: Position, update: UpdateFilter<SubmissionRecord>, to: State = position.state): Promise<boolean> {
    return this.#updates.call({ position, update, to });
  }

  async #updateTogether(items: readonly PositionedUpdate[]): Promise<Outcome<boolean>[]> {
    const { n } = await this.#writeInOrder(
      items.map(({ position: { requestId, state, version }, update }) => ({
        q: { _id: requestId, state, version },
        u: update,
      })),
    );
    if (n === items.length || n === 0) return items.map(() => ({ result: n > 0 }));
    // Some were not where they were expected. Nobody else moves a record under its holder's version, so whichever is
    // where its update leads has been updated.
    const found = await this.#collection
      .find({ _id: { $in: items.map((item) => item.position.requestId) } }, { projection: { state: 1, version: 1 } })
      .toArray();
    const now = new Map(found.map((record) => [record._id, record]));
    return items.map(({ position, to }) => {
      const record = now.get(position.requestId);
      return { result: record?.version === position.version && record.state === to };
    });
  }

  /** Writes in the order of ids, as everybody does who writes several: so two writes never wait for each other crosswise. */
  async #writeInOrder(items: readonly UpdateItem[]): Promise<WriteReply> {
    const sorted = items.toSorted((one, other) => (String(one.q['_id']) < String(other.q['_id']) ? -1 : 1));
    const reply = await pastLockConflicts(() => updateTogether(this.#collection, sorted, WRITE_DEADLINE_MS));
    if (!reply.durable || reply.writeErrors.length > 0) throw new Error('records were not written durably');
    return reply;
  }
}

/** A move was asked for that the table does not have: a fault in the code that asks. */
export class NoSuchMoveError extends Error {
  override readonly name = 'NoSuchMoveError';
}
