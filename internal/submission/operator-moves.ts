/** Operators' moves of a record, and their changes within a state. */
import type { Collection } from 'mongodb';
import { UNREGISTERED, type ErasureRegister } from '../account/account-corrections.ts';
import { mailReason, type StoredReason } from '../application/reasons.ts';
import { lateBounce } from '../application/sandbox-endings.ts';
import { later } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { unlessDuplicate, updateInOrder } from '../platform/stores/mongo.ts';
import {
  CLAIM_MS,
  submissionCollection,
  asFact,
  asReason,
  type SubmissionRecord,
  type Fact,
} from './submission.ts';
import {
  entryOf,
  makeMove,
  moveOf,
  type MoveTools,
  type MoveWrite,
  type RecordUpdate,
  touchOf,
} from './move-of.ts';
import type { OperatorEvent, State, Touch } from './states.ts';

/** A move does nothing if the record has changed since it was seen. */
export type Seen = Pick<SubmissionRecord, '_id' | 'state' | 'version' | 'accountId'>;

interface Moved {
  readonly seen: Seen;
  /** The account that this request created. */
  readonly accountId?: string | undefined;
  /** Why an e-mail came back. */
  readonly reasons?: readonly StoredReason[];
}

interface PlannedMove extends Moved {
  readonly to: State;
}

interface OperatorTools extends MoveTools {
  readonly register?: ErasureRegister | undefined;
}

export class OperatorMoves {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #tools: MoveTools;
  readonly #register: ErasureRegister;

  constructor({ register = UNREGISTERED, ...tools }: OperatorTools) {
    this.#tools = tools;
    this.#register = register;
    this.#collection = submissionCollection(tools.db);
  }

  /** False if the record has changed since, or has no such move. */
  async move(event: OperatorEvent, moved: Moved, reason: string | Fact): Promise<boolean> {
    const move = this.#moveOf(event, moved, reason);
    if (move === undefined) return false;
    const { _id } = moved.seen;
    const make = (): Promise<boolean> => makeMove(this.#collection, _id, move);
    return event === 'erase' ? this.#register.erasing('erase', _id, make) : make();
  }

  /** Returns how many records have moved to their planned state. */
  async moveAll(
    event: OperatorEvent,
    items: readonly PlannedMove[],
    reason: string | Fact,
  ): Promise<number> {
    const alike = Map.groupBy(items, ({ seen, to, accountId }) =>
      [seen.state, seen.version, to, seen.accountId, accountId].join(' '),
    );
    const updates = [...alike.values()].flatMap((group) => {
      const [first] = group as [PlannedMove, ...PlannedMove[]];
      const move = this.#moveOf(event, first, reason);
      if (move?.to !== first.to) return [];
      const ids = group.map(({ seen }) => seen._id);
      return [{ ids, q: move.filter, u: move.update, done: move.done }];
    });
    if (updates.length === 0) return 0;
    const { n, isWhole } = await updateInOrder(this.#collection, updates);
    for (const { ids, u, done } of updates) done(isWhole ? ids : await this.#movedBy(ids, u));
    return n;
  }

  /** Returns those that moved; the others had changed before. */
  async #movedBy(ids: readonly string[], { $set }: RecordUpdate): Promise<readonly string[]> {
    const moved = defined({ state: $set.state, stateAt: $set.stateAt });
    const found = await this.#collection
      .find({ _id: { $in: ids }, ...moved }, { projection: { _id: 1 }, ...bounded })
      .toArray();
    return found.map(({ _id }) => _id);
  }

  /** Recreates an account's expired record for a new e-mail, as if received now. */
  async remake(
    event: OperatorEvent,
    record: SubmissionRecord,
    reason: string | Fact,
  ): Promise<boolean> {
    const state = 'account_created';
    const now = this.#tools.clock.now();
    const entry = defined(entryOf(state, { now, retention: this.#tools.retention }));
    const why = asReason(asFact(event, reason));
    const history = [{ state, at: now, attempt: 0, ...why }] as const;
    const made = { receivedAt: now, mailsSince: record.version, history };
    return unlessDuplicate(this.#collection.insertOne({ ...record, ...entry, ...made }));
  }

  async claim(seen: Seen): Promise<Seen | undefined> {
    const until = later(this.#tools.clock.now(), CLAIM_MS);
    const version = seen.version + 1;
    const claimed = await this.#touch('take_from_worker', seen, {
      $set: { dueAt: until, claimedUntil: until, version },
      $unset: { firstSeenAt: true },
    });
    return claimed ? { ...seen, version } : undefined;
  }

  /** False if the record has changed or a worker may be sending its e-mail. */
  async hurry(seen: Seen): Promise<boolean> {
    return this.#touch('hurry', seen, {
      $set: { dueAt: this.#tools.clock.now(), version: seen.version + 1 },
      $unset: { claimedUntil: true, firstSeenAt: true, crashes: true },
    });
  }

  /** Keeps the digest, so that a repeated request gets the same answer. */
  async eraseBody(seen: Seen): Promise<boolean> {
    const erase = () =>
      this.#touch('erase_body', seen, { $unset: { body: true, bodyUntil: true } });
    return this.#register.erasing('erase body', seen._id, erase);
  }

  async correctEmail(requestId: string, email: string): Promise<void> {
    await this.#collection.updateOne(
      { _id: requestId, ...touchOf('correct_email', {}, this.#tools.clock.now()) },
      { $set: { 'applicant.email': email } },
    );
  }

  #moveOf(
    event: OperatorEvent,
    { seen, accountId, reasons }: Moved,
    reason: string | Fact,
  ): MoveWrite | undefined {
    const now = this.#tools.clock.now();
    const found = defined({ reasons });
    return moveOf(event, seen, { ...this.#tools, now, accountId, reason, found });
  }

  async #touch(touch: Touch, seen: Seen, update: Partial<RecordUpdate>): Promise<boolean> {
    const filter = touchOf(touch, seen, this.#tools.clock.now());
    if (filter === undefined) return false;
    const { matchedCount } = await this.#collection.updateOne({ _id: seen._id, ...filter }, update);
    return matchedCount === 1;
  }
}

/** Time from completion to the bounce, for tests that ask for it. */
const LATE_BOUNCE_MS = 60_000;
const LATE_BOUNCES_PAGE = 100;
const LATE_BOUNCE_WORDS = 'a test: its e-mail bounces after the mail server took it';

/** Reports such bounces as an operator would. True if more may be due. */
export async function reportLateBounces(tools: MoveTools): Promise<boolean> {
  const moves = new OperatorMoves(tools);
  const found = await submissionCollection(tools.db)
    .find(
      {
        'applicant.ein': lateBounce.ein,
        test: true,
        state: 'completed',
        stateAt: { $lte: later(tools.clock.now(), -LATE_BOUNCE_MS) },
      },
      { projection: { state: 1, version: 1, accountId: 1 }, ...bounded },
    )
    .limit(LATE_BOUNCES_PAGE)
    .toArray();
  const reasons = [mailReason(lateBounce.reason)];
  for (const seen of found) {
    const { accountId } = seen;
    await moves.move('report_bounce', { seen, accountId, reasons }, LATE_BOUNCE_WORDS);
  }
  return found.length === LATE_BOUNCES_PAGE;
}
