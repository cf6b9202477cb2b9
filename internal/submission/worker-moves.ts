/** Workers' conditional updates of a record. */
import type { Collection } from 'mongodb';
import { later } from '../platform/process/clock.ts';
import { databaseSpan, takesWrites } from '../platform/stores/mongo.ts';
import { inSpan, type NamedSpan } from '../platform/process/tracing.ts';
import {
  CLAIM_MS,
  type OpenRecord,
  submissionCollection,
  type SubmissionRecord,
} from './submission.ts';
import {
  makeMove,
  moveOf,
  touchOf,
  type MoveTools,
  type MoveWrite,
  type RecordUpdate,
} from './move-of.ts';
import type { ProcessorEvent } from './states.ts';

/** A worker whose `version` is outdated has lost its claim. */
export type Position = Pick<OpenRecord, '_id' | 'state' | 'version'>;

type AttemptCounts = Partial<
  Pick<SubmissionRecord, 'attempts' | 'ambiguous' | 'backedOffMs' | 'lastError'>
>;

export interface Changes
  extends AttemptCounts, Partial<Pick<SubmissionRecord, 'applicant' | 'reasons' | 'accountId'>> {
  readonly reason?: string;
}

export class WorkerMoves {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #tools: MoveTools;

  constructor(tools: MoveTools) {
    this.#tools = tools;
    this.#collection = submissionCollection(tools.db);
  }

  /**
   * Undefined if another claim came first or is active, or shortly after a step of the clock, when
   * a slow worker's claim may look expired.
   */
  async claim(requestId: string, version: number): Promise<OpenRecord | undefined> {
    const now = this.#tools.clock.now();
    const $set = { ...heldFrom(now), version: version + 1 };
    const free = await this.#collection.findOneAndUpdate(
      { _id: requestId, ...touchOf('claim', { version }, now) },
      { $set, $unset: { takenOver: true } },
      { returnDocument: 'after' },
    );
    // What nobody has claimed cannot be taken over.
    if (free !== null || version === 0) return (free ?? undefined) as OpenRecord | undefined;
    // Claims of live workers may look expired until they are renewed by the new time.
    const { steppedAtMs = -Infinity } = this.#tools.clock;
    if (this.#tools.clock.monotonicMs() - steppedAtMs < CLAIM_MS) return undefined;
    // The claim expired, so its worker died.
    const taken = await this.#collection.findOneAndUpdate(
      { _id: requestId, ...touchOf('take_over', { version }, now) },
      { $set: { ...$set, takenOver: true }, $inc: { crashes: 1 } },
      { returnDocument: 'after' },
    );
    return (taken ?? undefined) as OpenRecord | undefined;
  }

  async renew(position: Position): Promise<boolean> {
    return this.#keep(position, { $set: heldFrom(this.#tools.clock.now()) });
  }

  /** True if the claim was still held. */
  async move(
    position: Position,
    event: ProcessorEvent,
    attempt: number,
    changes: Changes = {},
  ): Promise<boolean> {
    const move = this.#moveOf(position, event, attempt, changes);
    return inSpan(this.#spanOf(move), () => makeMove(this.#collection, position._id, move));
  }

  /**
   * Moves by `create_account`, and claims the record for its e-mail. Returns it without its body.
   */
  async moveOn(
    position: Position,
    attempt: number,
    changes: Changes = {},
  ): Promise<OpenRecord | undefined> {
    const { claimedUntil } = heldFrom(this.#tools.clock.now());
    const move = this.#moveOf(position, 'create_account', attempt, changes, claimedUntil);
    const filter = { _id: position._id, ...move.filter };
    const options = { returnDocument: 'after', projection: { body: 0 } } as const;
    const moved = await inSpan(this.#spanOf(move), () =>
      this.#collection.findOneAndUpdate(filter, move.update, options),
    );
    return (moved ?? undefined) as OpenRecord | undefined;
  }

  /** Releases the record. True if the claim was still held. */
  async putBack(position: Position, dueAt: Date, counts: AttemptCounts = {}): Promise<boolean> {
    return this.#keep(position, {
      $set: { dueAt, ...counts },
      $unset: { claimedUntil: true, crashes: true },
    });
  }

  /** Like `putBack`, but keeps `crashes`: the previous worker died. */
  async putApart(position: Position, dueAt: Date): Promise<boolean> {
    return this.#keep(position, { $set: { dueAt }, $unset: { claimedUntil: true } });
  }

  takesWrites(): Promise<boolean> {
    return takesWrites(this.#collection);
  }

  #moveOf(
    position: Position,
    event: ProcessorEvent,
    attempt: number,
    { reason, ...found }: Changes,
    claimedUntil?: Date,
  ): MoveWrite {
    const now = this.#tools.clock.now();
    const options = { ...this.#tools, now, attempt, reason, found, claimedUntil };
    const move = moveOf(event, position, options);
    if (move === undefined) throw new Error(`${event} does not lead away from ${position.state}`);
    return move;
  }

  #spanOf({ to }: MoveWrite): NamedSpan {
    return databaseSpan('update', this.#collection, { 'partner_ingest.state': to });
  }

  async #keep(position: Position, update: RecordUpdate): Promise<boolean> {
    const { matchedCount } = await this.#collection.updateOne(
      { _id: position._id, ...touchOf('keep', position, this.#tools.clock.now()) },
      update,
    );
    return matchedCount === 1;
  }
}

function heldFrom(now: Date): { readonly dueAt: Date; readonly claimedUntil: Date } {
  const until = later(now, CLAIM_MS);
  return { dueAt: until, claimedUntil: until };
}
