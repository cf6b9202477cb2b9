/** What every process writes to a record: the tables of states.ts, as filters and updates. */
import type { Filter } from 'mongodb';
import { discardedReason } from '../application/reasons.ts';
import { DAY_MS, later } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import {
  cards,
  eventsOf,
  isOpen,
  moves,
  touches,
  type Condition,
  type Event,
  type KeptState,
  type State,
  type Touch,
} from './states.ts';
import { EARLY_MS } from './limits.ts';
import { RECORD_SCHEMA, type HistoryEntry, type SubmissionRecord } from './submission.ts';

/** What is given has not changed since, or nothing is written. */
export type Seen = Partial<Pick<SubmissionRecord, 'state' | 'version' | 'accountId'>>;

type RecordFilter = Filter<SubmissionRecord>;

const noClaim = { claimedUntil: { $exists: false } } as const;

/** An account is in a collection of its own: what its record says of it must not have changed. */
const sameAccount = ({ accountId }: Seen): RecordFilter => ({
  accountId: accountId ?? { $exists: false },
});

const filters: Readonly<Record<Condition, (seen: Seen, now: Date) => RecordFilter>> = {
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

/** To which `_id` is added. Records of a newer schema are left alone. */
function filterOf(
  from: readonly State[],
  when: readonly Condition[],
  seen: Seen,
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
export function touchOf(touch: Touch, seen: Seen, now: Date): RecordFilter | undefined {
  const { from, when } = touches[touch];
  const wanted = from.filter((state) => (seen.state ?? state) === state);
  return wanted.length === 0 ? undefined : filterOf(wanted, when, seen, now);
}

export interface RecordUpdate {
  readonly $set: Readonly<Partial<SubmissionRecord>>;
  readonly $unset?: Readonly<Partial<Record<keyof SubmissionRecord, true>>>;
  readonly $push?: { readonly history: HistoryEntry };
}

export interface Step {
  readonly to: State;
  readonly filter: RecordFilter;
  readonly update: RecordUpdate;
}

export interface MoveOptions {
  readonly now: Date;
  /** Whether an account made by this request exists, for the moves that ask for it. */
  readonly account?: boolean;
  readonly attempt?: number;
  readonly reason?: string | undefined;
  /** A move to an open state also claims the record for its next step, until then. */
  readonly claimedUntil?: Date | undefined;
  /** In days. */
  readonly retention: Readonly<Partial<Record<KeptState | 'body', number>>>;
}

/**
 * Undefined if the table has no such move from the state that was seen. Without a state: from all
 * that the event leads from, which must have one end.
 */
export function moveOf(event: Event, seen: Seen, options: MoveOptions): Step | undefined {
  const { now, account } = options;
  const possible = moves.filter(
    ({ event: other, from, when }) =>
      other === event &&
      (seen.state ?? from) === from &&
      !when.includes(account === true ? 'no account' : 'account'),
  );
  const [move] = possible;
  if (move === undefined) return undefined;
  const { to, when, stays } = move;
  const filter = filterOf(
    possible.map(({ from }) => from),
    when,
    seen,
    now,
  );
  const version = (seen.version ?? 0) + 1;
  if (!(eventsOf.operator as readonly Event[]).includes(event)) {
    const update = entryOf(to, options);
    const { claimedUntil } = options;
    if (claimedUntil === undefined || !isOpen(to)) return { to, filter, update };
    const { claimedUntil: _claimed, ...$unset } = update.$unset;
    const $set = { ...update.$set, claimedUntil, dueAt: claimedUntil, version };
    return { to, filter, update: { ...update, $set, $unset } };
  }
  // The new version makes a worker's late writes fail.
  if (stays) return { to, filter, update: { $set: { version } } };
  const { $set, $unset, $push } = entryOf(to, options);
  // The operator's own reason may name a person.
  const reasons = cards[to].status === 'rejected' ? { reasons: [discardedReason] } : {};
  const update: RecordUpdate = isOpen(to)
    ? {
        $set: { ...$set, version, mailsSince: version },
        $unset: { ...$unset, reasons: true },
        $push,
      }
    : { $set: { ...$set, version, ...reasons }, $unset, $push };
  return { to, filter, update };
}

/** What a record has in a state, with all its dates, so that no state lacks them. */
export function entryOf(
  to: State,
  { now, attempt = 0, reason, retention }: Omit<MoveOptions, 'account'>,
): Required<RecordUpdate> {
  const { kept, body } = cards[to];
  const dueNow = { dueAt: now, attempts: 0, ambiguous: 0 };
  const after = (days: number | undefined): Date => {
    if (days === undefined) throw new Error(`nothing says how long ${to} is kept`);
    return later(now, days * DAY_MS);
  };
  return {
    $set: {
      state: to,
      stateAt: now,
      ...(kept === 'work' ? dueNow : {}),
      ...(kept === 'days' ? { expiresAt: after(retention[to as KeptState]) } : {}),
      ...(body === 'days' ? { bodyUntil: after(retention.body) } : {}),
    },
    $unset: {
      firstSeenAt: true,
      claimedUntil: true,
      backedOffMs: true,
      crashes: true,
      ...(kept === 'work' ? {} : { dueAt: true }),
      ...(kept === 'days' ? {} : { expiresAt: true }),
      ...(body === 'days' ? {} : { bodyUntil: true }),
    },
    $push: { history: { state: to, at: now, attempt, ...defined({ reason }) } },
  };
}
