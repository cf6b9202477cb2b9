/** Workers' conditional updates of a record; those of one moment leave in one command. */
import type { Collection } from 'mongodb';
import {
  joinCalls,
  JOINED_AT_MOST,
  joinUpdates,
  type JoinedAnswer,
  type OneUpdate,
} from '../platform/stores/mongo-joined.ts';
import { later } from '../platform/process/clock.ts';
import { newId } from '../platform/stores/ids.ts';
import { databaseSpan, takesWrites, updateEach } from '../platform/stores/mongo.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { inSpan } from '../platform/process/tracing.ts';
import {
  CLAIM_MS,
  submissionCollection,
  type OpenRecord,
  type SubmissionRecord,
  type Fact,
} from './submission.ts';
import { moveOf, touchOf, type MoveTools, type MoveWrite, type RecordUpdate } from './move-of.ts';
import type { ProcessorEvent } from './states.ts';

/** A worker whose `version` is outdated has lost its claim. */
export type Position = Pick<OpenRecord, '_id' | 'state' | 'version'>;

export type AttemptCounts = Partial<
  Pick<
    SubmissionRecord,
    'attempts' | 'ambiguous' | 'backedOffMs' | 'lastError' | 'lastFact' | 'waitsSince'
  >
>;

export interface Changes
  extends AttemptCounts, Partial<Pick<SubmissionRecord, 'applicant' | 'reasons' | 'accountId'>> {
  readonly reason?: string | Fact;
}

/** Commands; what is forgotten is due once its claim expires. */
const IN_DOUBT_AT_MOST = 100;

interface Wanted {
  readonly requestId: string;
  readonly version: number;
}

/** What one command claimed. */
interface ClaimCommand {
  readonly ids: readonly string[];
  readonly claimedBy: string;
}

type Updated = Pick<SubmissionRecord, '_id' | 'state' | 'version' | 'history' | 'claimedUntil'>;
interface Write extends OneUpdate<Updated> {
  readonly u: RecordUpdate;
  readonly move?: MoveWrite;
}

export class WorkerMoves {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #tools: MoveTools;
  readonly #claims = joinCalls<Wanted, OpenRecord | undefined>(JOINED_AT_MOST, (wanted) =>
    this.#claimTogether(wanted),
  );
  readonly #update: ReturnType<typeof joinUpdates<Updated, Write>>;
  /** Claims that failed. Their records may be claimed all the same, and nobody works on them. */
  #inDoubt: readonly ClaimCommand[] = [];

  constructor(tools: MoveTools) {
    this.#tools = tools;
    this.#collection = submissionCollection(tools.db);
    const fields = { state: 1, version: 1, history: 1, claimedUntil: 1 };
    this.#update = joinUpdates(this.#collection as unknown as Collection<Updated>, fields);
  }

  /**
   * Undefined if another claim came first or is active, or shortly after a step of the clock, when
   * a slow worker's claim may look expired.
   */
  claim(requestId: string, version: number): Promise<OpenRecord | undefined> {
    return this.#claims({ requestId, version });
  }

  /** Releases what failed claims have claimed, so that it is due at once. */
  async releaseInDoubt(): Promise<void> {
    const inDoubt = this.#inDoubt;
    if (inDoubt.length === 0) return;
    const now = this.#tools.clock.now();
    const u = { $set: { dueAt: now }, $unset: { claimedUntil: true, claimedBy: true } };
    await updateEach(
      this.#collection,
      inDoubt.map(({ ids, claimedBy }) => ({
        ids,
        q: { ...touchOf('keep', {}, now), claimedBy },
        u,
      })),
    );
    this.#inDoubt = this.#inDoubt.filter((command) => !inDoubt.includes(command));
  }

  async #claimTogether(wanted: readonly Wanted[]): Promise<JoinedAnswer<OpenRecord | undefined>[]> {
    const now = this.#tools.clock.now();
    // The answer to an update is only a number; this mark shows which records are ours.
    const claimedBy = newId('claim', now);
    try {
      return await this.#claimAs(claimedBy, wanted, now);
    } catch (error) {
      const ids = [...new Set(wanted.map(({ requestId }) => requestId))];
      this.#inDoubt = [...this.#inDoubt, { ids, claimedBy }].slice(-IN_DOUBT_AT_MOST);
      throw error;
    }
  }

  async #claimAs(
    claimedBy: string,
    wanted: readonly Wanted[],
    now: Date,
  ): Promise<JoinedAnswer<OpenRecord | undefined>[]> {
    // Claims of live workers may look expired until they are renewed by the new time.
    const { steppedAtMs = -Infinity } = this.#tools.clock;
    const mayTakeOver = this.#tools.clock.monotonicMs() - steppedAtMs >= CLAIM_MS;
    const updates = [...Map.groupBy(wanted, ({ version }) => version)].flatMap(
      ([version, group]) => {
        const ids = [...new Set(group.map(({ requestId }) => requestId))];
        const $set = { ...heldFrom(now), version: version + 1, claimedBy };
        const free = touchOf('claim', { version }, now)!;
        const claim = { ids, q: free, u: { $set, $unset: { takenOver: true as const } } };
        // What nobody has claimed cannot be taken over.
        if (version === 0 || !mayTakeOver) return [claim];
        // The claim expired, so its worker died.
        const expired = touchOf('take_over', { version }, now)!;
        const u = { $set: { ...$set, takenOver: true }, $inc: { crashes: 1 } };
        return [claim, { ids, q: expired, u }];
      },
    );
    const { failed } = await updateEach(this.#collection, updates);
    const ids = wanted.map(({ requestId }) => requestId);
    // Also if no update matched: one that was sent again after a conflict may have claimed before.
    const mine = { _id: { $in: ids }, claimedBy };
    const found = await this.#collection.find(mine, bounded).toArray();
    const claimed = new Map(found.map((record) => [record._id, record as OpenRecord]));
    const errors = new Map(failed.map(({ id, error }) => [id, error]));
    return wanted.map(({ requestId, version }) => {
      const record = claimed.get(requestId);
      if (record?.version === version + 1) {
        // Two calls may name one record.
        claimed.delete(requestId);
        return { answer: record };
      }
      return errors.has(requestId) ? { error: errors.get(requestId) } : { answer: undefined };
    });
  }

  async renew(position: Position): Promise<boolean> {
    return this.#keep(position, (now) => ({ $set: heldFrom(now) }));
  }

  /** True if the claim was still held. */
  async move(
    position: Position,
    event: ProcessorEvent,
    attempt: number,
    changes: Changes = {},
  ): Promise<boolean> {
    const made = await this.#move(position, event, attempt, changes);
    return made !== undefined;
  }

  /**
   * Moves by `create_account`, and claims the record for its e-mail. Returns it as it is then,
   * without its body.
   */
  async moveOn(
    { body: _body, ...record }: OpenRecord,
    attempt: number,
    changes: Changes = {},
  ): Promise<OpenRecord | undefined> {
    const made = await this.#move(record, 'create_account', attempt, changes, { claims: true });
    if (made === undefined) return undefined;
    const { $set, $unset = {}, $push } = made.u;
    const history = [...record.history, ...($push === undefined ? [] : [$push.history])];
    const moved = { ...record, ...$set, history };
    for (const name in $unset) Reflect.deleteProperty(moved, name);
    return moved as OpenRecord;
  }

  /** Releases the record. True if the claim was still held. */
  async putBack(position: Position, dueAt: Date, counts: AttemptCounts = {}): Promise<boolean> {
    return this.#keep(position, () => ({
      $set: { dueAt, ...counts },
      $unset: { claimedUntil: true, claimedBy: true, crashes: true },
    }));
  }

  /** Like `putBack`, but keeps `crashes`: the previous worker died. */
  async putApart(position: Position, dueAt: Date): Promise<boolean> {
    return this.#keep(position, () => ({
      $set: { dueAt },
      $unset: { claimedUntil: true, claimedBy: true },
    }));
  }

  takesWrites(): Promise<boolean> {
    return takesWrites(this.#collection);
  }

  async #move(
    position: Position,
    event: ProcessorEvent,
    attempt: number,
    { reason, ...found }: Changes,
    { claims = false } = {},
  ): Promise<Write | undefined> {
    const build = (): Write => {
      const now = this.#tools.clock.now();
      const claimedUntil = claims ? heldFrom(now).claimedUntil : undefined;
      const options = { ...this.#tools, now, attempt, reason, found, claimedUntil };
      const move = moveOf(event, position, options);
      if (move === undefined) throw new Error(`${event} does not lead away from ${position.state}`);
      const { filter: q, update: u } = move;
      return { q, u, move, shows: showing(u) };
    };
    const { _id: id, state, version } = position;
    const isPlain = reason === undefined && Object.keys(found).length === 0 && !claims;
    const alike = isPlain ? [event, state, version, attempt].join(' ') : undefined;
    return inSpan(databaseSpan('update', this.#collection), async (span) => {
      const made = await this.#update({ id, alike, build });
      if (made?.move === undefined) return undefined;
      span.setAttribute('partner_ingest.state', made.move.to);
      made.move.done([id]);
      return made;
    });
  }

  async #keep(position: Position, updateAt: (now: Date) => RecordUpdate): Promise<boolean> {
    const { _id: id, state, version } = position;
    const build = (): Write => {
      const now = this.#tools.clock.now();
      const q = touchOf('keep', position, now)!;
      // A process that took the record since has raised its version.
      const shows = (after: Updated): boolean => after.version === version && after.state === state;
      return { q, u: updateAt(now), shows };
    };
    return (await this.#update({ id, build })) !== undefined;
  }
}

/**
 * Only its claim's holder moves a record, so its history has the entry if the move was made. A move
 * that claims the record, too, is made only while that claim is its last.
 */
function showing({ $set: { version, claimedUntil }, $push }: RecordUpdate): Write['shows'] {
  const entry = $push?.history;
  return (after) =>
    (claimedUntil === undefined ||
      (after.version === version && after.claimedUntil?.getTime() === claimedUntil.getTime())) &&
    after.history.some(
      ({ state, at, attempt }) =>
        state === entry?.state && attempt === entry.attempt && at.getTime() === entry.at.getTime(),
    );
}

function heldFrom(now: Date): { readonly dueAt: Date; readonly claimedUntil: Date } {
  const until = later(now, CLAIM_MS);
  return { dueAt: until, claimedUntil: until };
}
