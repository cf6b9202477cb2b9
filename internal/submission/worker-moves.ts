/** Workers' and reconcile's conditional updates of a record. */
import type { Collection, Db, UpdateFilter } from 'mongodb';
import { Batcher, type Outcome } from '../platform/batcher.ts';
import { later, type Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { newId } from '../platform/ids.ts';
import {
  databaseSpan,
  requireDurable,
  takesWrites,
  updateInOrder,
  type UpdateOfMany,
  type WriteReply,
} from '../platform/mongo.ts';
import { inSpan } from '../platform/tracing.ts';
import { moveUpdate } from './move-update.ts';
import { DueRecords, type DueRecord } from './due-records.ts';
import { CLAIM_MS } from './limits.ts';
import {
  nextState,
  openStates,
  type OpenState,
  type ProcessorEvent,
  type RetentionDays,
  type State,
} from './states.ts';
import {
  RECORD_SCHEMA,
  type Applicant,
  submissionCollection,
  type SubmissionRecord,
} from './submission.ts';
import type { Reason } from '../application/reasons.ts';

/** A worker with another version has lost its claim. */
export interface Position {
  readonly requestId: string;
  readonly state: OpenState;
  readonly version: number;
}

export interface Changes {
  readonly applicant?: Applicant;
  readonly reasons?: readonly Reason[];
  readonly accountId?: string;
  readonly attempts?: number;
  readonly ambiguous?: number;
  readonly lastError?: string;
  readonly reason?: string;
  readonly keepClaim?: true;
}

interface Wanted {
  readonly requestId: string;
  readonly version: number;
}

interface PositionedUpdate {
  readonly position: Position;
  /** Built when it is sent, so that `claimedUntil` is not too early. */
  readonly update: (now: Date) => UpdateFilter<SubmissionRecord>;
  readonly to: State;
  readonly same?: string;
}

export class WorkerMoves {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #retention: RetentionDays;
  readonly #clock: Clock;
  readonly #due: DueRecords;
  readonly #claims = new Batcher<Wanted, SubmissionRecord | undefined>((wanted) =>
    this.#claimTogether(wanted),
  );
  readonly #updates = new Batcher<PositionedUpdate, boolean>((items) =>
    this.#updateTogether(items),
  );

  constructor(options: {
    readonly db: Db;
    readonly retention: RetentionDays;
    readonly clock: Clock;
  }) {
    this.#collection = submissionCollection(options.db);
    this.#retention = options.retention;
    this.#clock = options.clock;
    this.#due = new DueRecords(this.#collection, options.clock);
  }

  /**
   * Undefined if another claim came first or is active: a repeated hint must not take a slow
   * worker's record.
   */
  claim(requestId: string, version: number): Promise<SubmissionRecord | undefined> {
    return this.#claims.call({ requestId, version });
  }

  async #claimTogether(
    wanted: readonly Wanted[],
  ): Promise<Outcome<SubmissionRecord | undefined>[]> {
    // The update returns only a number; this mark shows which records were claimed.
    const claimedBy = newId('claim');
    const now = this.#clock.now();
    const until = later(now, CLAIM_MS);
    const claim = { dueAt: until, claimedUntil: until, claimedBy };
    const { n } = await this.#write(
      [...Map.groupBy(wanted, ({ version }) => version)].flatMap(([version, group]) => {
        const ids = group.map(({ requestId }) => requestId);
        const q = { version, state: { $in: [...openStates] }, schema: { $lte: RECORD_SCHEMA } };
        const $set = { ...claim, version: version + 1 };
        return [
          {
            ids,
            q: { ...q, claimedUntil: { $exists: false } },
            u: { $set, $unset: { takenOver: true } },
          },
          // The claim expired, so its worker died.
          {
            ids,
            q: { ...q, claimedUntil: { $lte: now } },
            u: {
              $set: { ...$set, takenOver: true },
              $inc: { crashes: 1 },
            },
          },
        ];
      }),
    );
    const ids = wanted.map(({ requestId }) => requestId);
    const found =
      n === 0 ? [] : await this.#collection.find({ _id: { $in: ids }, claimedBy }).toArray();
    const claimed = new Map(found.map((record) => [record._id, record]));
    return wanted.map(({ requestId, version }) => {
      const record = claimed.get(requestId);
      if (record?.version !== version + 1) return { result: undefined };
      // The batch may hold another hint for the record.
      claimed.delete(requestId);
      return { result: record };
    });
  }

  async renew(position: Position): Promise<boolean> {
    const hold = (now: Date): UpdateFilter<SubmissionRecord> => {
      const until = later(now, CLAIM_MS);
      return { $set: { dueAt: until, claimedUntil: until } };
    };
    return this.#updates.call({ position, update: hold, to: position.state, same: 'renew' });
  }

  async move(
    position: Position,
    event: ProcessorEvent,
    attempt: number,
    changes: Changes = {},
  ): Promise<State | undefined> {
    const to = nextState(position.state, event, { account: false, claimed: true, erased: false });
    if (to === undefined) throw new Error(`${event} does not lead away from ${position.state}`);
    const { reason, keepClaim, ...fields } = changes;
    const update = (now: Date): UpdateFilter<SubmissionRecord> => {
      const claimedUntil = keepClaim === true ? later(now, CLAIM_MS) : undefined;
      const options = {
        now,
        attempt,
        reason,
        claimedUntil,
        dueInMs: 0,
        retention: this.#retention,
      };
      const moved = moveUpdate(to, options);
      return { ...moved, $set: { ...fields, ...moved.$set } };
    };
    const same =
      Object.keys(changes).length === 0 ? { same: `${event} at attempt ${attempt}` } : {};
    const span = databaseSpan('update', this.#collection, { 'partner_ingest.state': to });
    const moved = await inSpan(span, () => this.#updates.call({ position, update, to, ...same }));
    return moved ? to : undefined;
  }

  async postpone(
    position: Position,
    next: {
      readonly delayMs: number;
      readonly attempts: number;
      readonly ambiguous: number;
      readonly backedOffMs: number;
      readonly lastError: string;
    },
  ): Promise<boolean> {
    const { delayMs, ...fields } = next;
    const update = (now: Date): UpdateFilter<SubmissionRecord> => ({
      $set: { dueAt: later(now, delayMs), ...fields },
      $unset: { claimedUntil: true, crashes: true },
    });
    return this.#updates.call({ position, update, to: position.state });
  }

  /** Releases the record. `lastError` is absent if an operator caused it. */
  async putBack(position: Position, dueAt: Date, lastError?: string): Promise<boolean> {
    const update = (): UpdateFilter<SubmissionRecord> => ({
      $set: { dueAt, ...defined({ lastError }) },
      $unset: { claimedUntil: true, crashes: true },
    });
    return this.#updates.call({ position, update, to: position.state });
  }

  /** Keeps `crashes`, because the previous worker died. */
  async putApart(position: Position, dueAt: Date): Promise<boolean> {
    const update = (): UpdateFilter<SubmissionRecord> => ({
      $set: { dueAt },
      $unset: { claimedUntil: true },
    });
    return this.#updates.call({ position, update, to: position.state });
  }

  takesWrites(): Promise<boolean> {
    return takesWrites(this.#collection);
  }

  findDue(limit: number, withoutPartners: readonly string[]): Promise<DueRecord[]> {
    return this.#due.find(limit, withoutPartners);
  }

  countUnknownDue(limit: number): Promise<number> {
    return this.#due.countUnknown(limit);
  }

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
        q: { version, ...defined({ dueAt }) },
        u: {
          $set: { dueAt: later(now, delayMs), ...(options.firstSeen ? { firstSeenAt: now } : {}) },
        },
      })),
    );
  }

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
    // Only the claim's holder moves a record under its version, so a record in `to` was updated.
    const found = await this.#collection
      .find(
        { _id: { $in: items.map((item) => item.position.requestId) } },
        { projection: { state: 1, version: 1 } },
      )
      .toArray();
    const records = new Map(found.map((record) => [record._id, record]));
    return items.map(({ position, to }) => {
      const record = records.get(position.requestId);
      return { result: record?.version === position.version && record.state === to };
    });
  }

  async #write(updates: readonly UpdateOfMany[]): Promise<WriteReply> {
    return requireDurable(await updateInOrder(this.#collection, updates));
  }
}
