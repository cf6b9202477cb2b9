/** Reading and moving records after the door: claims, renewals and moves, each one conditional update. */
import type { Collection, UpdateFilter } from 'mongodb';
import { Batcher, type Outcome } from '../platform/batcher.ts';
import { later, type Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import {
  databaseSpan,
  pastLockConflicts,
  updateInOrder,
  type UpdateOfMany,
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
  /** As of the instant it is sent: what says until when a record is held must not be older than its holder believes. */
  readonly update: (now: Date) => UpdateFilter<SubmissionRecord>;
  /** The state it leads to. */
  readonly to: State;
  /** Updates of one name are the same for every record, so that one statement makes them for all of a position. */
  readonly same?: string;
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
    const { n } = await this.#write(
      // Most hints of a moment are of one version, and one statement for many costs the server a fraction.
      [...Map.groupBy(wanted, ({ version }) => version)].map(([version, group]) => ({
        ids: group.map(({ requestId }) => requestId),
        q: {
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
    const hold = (now: Date): UpdateFilter<SubmissionRecord> => {
      const until = later(now, CLAIM_MS);
      return { $set: { dueAt: until, heldUntil: until } };
    };
    return this.#updates.call({ position, update: hold, to: position.state, same: 'renew' });
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
    const update = (now: Date): UpdateFilter<SubmissionRecord> => {
      const moved = moveUpdate(to, { now, attempt, reason, dueInMs: FIRST_DUE_MS, retention: this.#retention });
      return { ...moved, $set: { ...fields, ...moved.$set } };
    };
    const same = Object.keys(changes).length === 0 ? { same: `${event} at attempt ${attempt}` } : {};
    const span = databaseSpan('update', this.#collection, { 'partner_ingest.state': to });
    const moved = await inSpan(span, () => this.#updates.call({ position, update, to, ...same }));
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
    const update = (now: Date): UpdateFilter<SubmissionRecord> => ({
      $set: { dueAt: later(now, delayMs), ...fields },
      $unset: { heldUntil: true },
    });
    return this.#updates.call({ position, update, to: position.state });
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
    await this.#write(
      records.map(({ _id, version, dueAt }) => ({
        ids: [_id],
        q: { version, ...(dueAt === undefined ? {} : { dueAt }) },
        u: { $set: { dueAt: later(now, delayMs), ...(options.firstSeen ? { firstSeenAt: now } : {}) } },
      })),
    );
  }

  async read(requestId: string): Promise<SubmissionRecord | undefined> {
    return (await this.#collection.findOne({ _id: requestId })) ?? undefined;
  }

  /** Of each item, whether its record was at its position, and is in `to` now. */
  async #updateTogether(items: readonly PositionedUpdate[]): Promise<Outcome<boolean>[]> {
    const now = this.#clock.now();
    const alike = Map.groupBy(items, ({ same, position: { requestId, state, version } }) =>
      same === undefined ? requestId : `${same} ${state} ${version}`,
    );
    const { n } = await this.#write(
      [...alike.values()].map((group) => {
        const { position, update } = group[0]!;
        const ids = group.map((item) => item.position.requestId);
        return { ids, q: { state: position.state, version: position.version }, u: update(now) };
      }),
    );
    if (n === items.length || n === 0) return items.map(() => ({ result: n > 0 }));
    // Some were not where they were expected. Nobody else moves a record under its holder's version, so whichever is
    // where its update leads has been updated.
    const found = await this.#collection
      .find({ _id: { $in: items.map((item) => item.position.requestId) } }, { projection: { state: 1, version: 1 } })
      .toArray();
    const records = new Map(found.map((record) => [record._id, record]));
    return items.map(({ position, to }) => {
      const record = records.get(position.requestId);
      return { result: record?.version === position.version && record.state === to };
    });
  }

  async #write(updates: readonly UpdateOfMany[]): Promise<WriteReply> {
    const reply = await pastLockConflicts(() => updateInOrder(this.#collection, updates, WRITE_DEADLINE_MS));
    if (!reply.durable || reply.writeErrors.length > 0) throw new Error('records were not written durably');
    return reply;
  }
}

/** A move was asked for that the table does not have: a fault in the code that asks. */
export class NoSuchMoveError extends Error {
  override readonly name = 'NoSuchMoveError';
}
