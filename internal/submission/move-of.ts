/** What every process writes to a record: the tables of states.ts, as filters and updates. */
import type { Collection, Db, Filter } from 'mongodb';
import { discardedReason } from '../application/reasons.ts';
import { DAY_MS, later, type Clock } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import {
  asFact,
  asLastError,
  asReason,
  RECORD_SCHEMA,
  type Fact,
  type HistoryEntry,
  type SubmissionRecord,
} from './submission.ts';
import {
  cards,
  eventsOf,
  isOpen,
  moves,
  touches,
  type Condition,
  type Event,
  type KeptState,
  type Move,
  type RetentionDays,
  type State,
  type Touch,
} from './states.ts';

/** Two processes know the database's time within this of each other. */
const EARLY_MS = 1_000;

/** What is given has not changed since, or nothing is written. */
export type Unchanged = Partial<Pick<SubmissionRecord, 'state' | 'version' | 'accountId'>>;

type RecordFilter = Filter<SubmissionRecord>;

const noClaim = { claimedUntil: { $exists: false } } as const;

/** An account is in a collection of its own: what its record says of it must not have changed. */
const sameAccount = ({ accountId }: Unchanged): RecordFilter => ({
  accountId: accountId ?? { $exists: false },
});

const filters: Readonly<Record<Condition, (seen: Unchanged, now: Date) => RecordFilter>> = {
  account: sameAccount,
  'no account': sameAccount,
  'not erased': () => ({ erasedAt: { $exists: false } }),
  'never claimed': () => ({ version: 0 }),
  'not adopted': () => ({ adopted: { $exists: false } }),
  'no claim': () => noClaim,
  // BullMQ goes by the local time of its workers, so a job may come too early.
  'due or new': ({ version }, now) =>
    version === 0 ? {} : { dueAt: { $lte: later(now, EARLY_MS) } },
  'claim expired': (_seen, now) => ({ claimedUntil: { $lte: now } }),
  'claim free': (_seen, now) => ({ $or: [noClaim, { claimedUntil: { $lte: now } }] }),
};

/** Without `_id`, which the caller adds. Records of a newer schema are left alone. */
function filterOf(
  from: readonly State[],
  when: readonly Condition[],
  seen: Unchanged,
  now: Date,
): RecordFilter {
  const { version } = seen;
  return {
    state: from.length === 1 ? from[0]! : { $in: [...from] },
    ...defined({ version }),
    schema: { $lte: RECORD_SCHEMA },
    ...Object.assign({}, ...when.map((condition) => filters[condition](seen, now))),
  };
}

/** The filter of an update that leaves the state; undefined if none is possible as it was seen. */
export function touchOf(touch: Touch, seen: Unchanged, now: Date): RecordFilter | undefined {
  const { from, when } = touches[touch];
  const wanted = from.filter((state) => (seen.state ?? state) === state);
  return wanted.length === 0 ? undefined : filterOf(wanted, when, seen, now);
}

/** What is undefined is removed. */
type Fields = { readonly [Name in keyof SubmissionRecord]?: SubmissionRecord[Name] | undefined };

export interface RecordUpdate {
  readonly $set: Readonly<Partial<SubmissionRecord>>;
  readonly $unset?: Readonly<Partial<Record<keyof SubmissionRecord, true>>>;
  readonly $push?: { readonly history: HistoryEntry };
}

export interface MoveWrite {
  readonly to: State;
  readonly filter: RecordFilter;
  readonly update: RecordUpdate;
  /** Call it once the update is stored, with those that it moved. */
  readonly done: (requestIds: readonly string[]) => void;
}

/** What a process gives its moves. */
export interface MoveTools {
  readonly db: Db;
  readonly retention: RetentionDays;
  readonly clock: Clock;
  /** Tells those who wait for the end of a request, who then read its record. */
  readonly tellEnd?: ((requestId: string) => void) | undefined;
}

/** A request that has ended for its partner, and by which move. */
export interface RequestEnd {
  readonly requestId: string;
  readonly event: Event;
  readonly to: State;
}

/**
 * What happens after every move that ends a request for its partner, in all processes: a row for
 * each listener. It is called once the move is stored, and not at all if the process dies before;
 * what must not be lost is stored with the move, by `entryOf`.
 */
export const endListeners: ((end: RequestEnd, tools: Pick<MoveTools, 'tellEnd'>) => void)[] = [
  ({ requestId }, { tellEnd }) => tellEnd?.(requestId),
];

interface MoveOptions extends Pick<MoveTools, 'tellEnd'> {
  readonly now: Date;
  /** The account that this request made, for the moves that ask for it. */
  readonly accountId?: string | undefined;
  readonly attempt?: number;
  readonly reason?: string | Fact | undefined;
  /** What the step found out. */
  readonly found?: Fields;
  /** A move to an open state also claims the record for its next step, until then. */
  readonly claimedUntil?: Date | undefined;
  /** In days. */
  readonly retention: Readonly<Partial<Record<KeptState | 'body', number>>>;
}

const movesOf = Object.groupBy(moves, ({ event }) => event) as Record<Event, readonly Move[]>;

/**
 * Undefined if the table has no such move from the state that was seen. Without a state: from all
 * that the event leads from, which must have one end.
 */
export function moveOf(event: Event, seen: Unchanged, options: MoveOptions): MoveWrite | undefined {
  const { now, accountId, attempt = 0, reason } = options;
  const why = reason === undefined ? undefined : asFact(event, reason);
  const possible = movesOf[event].filter(
    ({ from, when }) =>
      (seen.state ?? from) === from &&
      !when.includes(accountId === undefined ? 'account' : 'no account'),
  );
  const [move] = possible;
  if (move === undefined) return undefined;
  const { to, when, stays } = move;
  const from = possible.map((one) => one.from);
  const fields: Fields = {
    ...options.found,
    ...(stays ? {} : entryOf(to, options)),
    ...ofActor(move, (seen.version ?? 0) + 1, options),
    ...besides[event]?.(now, why),
  };
  const history = { state: to, at: now, attempt, ...(why && asReason(why)) };
  const update = { ...updateOf(fields), ...(stays ? {} : { $push: { history } }) };
  const ends = !stays && cards[to].status !== 'processing';
  const done = (requestIds: readonly string[]): void => {
    if (!ends) return;
    for (const requestId of requestIds)
      for (const listen of endListeners) listen({ requestId, event, to }, options);
  };
  return { to, filter: filterOf(from, when, seen, now), update, done };
}

/** Moves one record. False if it has changed since, or cannot move so. */
export async function makeMove(
  collection: Collection<SubmissionRecord>,
  requestId: string,
  { filter, update, done }: MoveWrite,
): Promise<boolean> {
  const { matchedCount } = await collection.updateOne({ _id: requestId, ...filter }, update);
  if (matchedCount === 1) done([requestId]);
  return matchedCount === 1;
}

/** Sets or removes every date that depends on the state; used by each move. */
export function entryOf(
  to: State,
  { now, retention }: Pick<MoveOptions, 'now' | 'retention'>,
): Fields {
  const { kept, body } = cards[to];
  const after = (days: number | undefined): Date => {
    if (days === undefined) throw new Error(`nothing says how long ${to} is kept`);
    return later(now, days * DAY_MS);
  };
  return {
    state: to,
    stateAt: now,
    firstSeenAt: undefined,
    claimedUntil: undefined,
    claimedBy: undefined,
    waitsSince: undefined,
    backedOffMs: undefined,
    crashes: undefined,
    ...(kept === 'work' ? { dueAt: now, attempts: 0, ambiguous: 0 } : { dueAt: undefined }),
    expiresAt: kept === 'days' ? after(retention[to as KeptState]) : undefined,
    bodyUntil: body === 'days' ? after(retention.body) : undefined,
  };
}

function ofActor(
  { event, to, stays }: Move,
  version: number,
  { accountId, claimedUntil }: MoveOptions,
): Fields {
  if (!(eventsOf.operator as readonly Event[]).includes(event)) {
    const claims = claimedUntil !== undefined && isOpen(to);
    return claims ? { claimedUntil, dueAt: claimedUntil, version } : {};
  }
  // The new version makes a worker's late writes fail.
  if (stays) return { version };
  const account = defined({ accountId });
  if (isOpen(to)) return { ...account, version, mailsSince: version, reasons: undefined };
  // The operator's own reason may name a person.
  const reasons = cards[to].status === 'rejected' ? { reasons: [discardedReason] } : {};
  return { ...account, version, ...reasons };
}

const returned = (now: Date, why?: Fact): Fields => {
  return { bouncedAt: now, ...(why && asLastError(why)) };
};

const besides: { readonly [E in Event]?: (now: Date, why?: Fact) => Fields } = {
  withdraw: () => ({ httpStatus: 500, idempotencyDigest: undefined }),
  report_bounce: returned,
  report_refusal: returned,
  release: (now) => ({ releasedAt: now }),
  // The digest would confirm a guessed address.
  erase: (now) => ({
    erasedAt: now,
    body: undefined,
    bodyUntil: undefined,
    bodySha256: undefined,
    userAgent: undefined,
    applicant: undefined,
  }),
};

function updateOf(fields: Fields): Required<Pick<RecordUpdate, '$set' | '$unset'>> {
  const $unset: { -readonly [Name in keyof Fields]?: true } = {};
  for (const name in fields) {
    const field = name as keyof Fields;
    if (fields[field] === undefined) $unset[field] = true;
  }
  return { $set: defined(fields), $unset };
}
