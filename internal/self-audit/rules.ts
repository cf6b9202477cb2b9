/** What must be true of every record and every account. */
import { createHash } from 'node:crypto';
import type { CheckedAccount } from '../account/account-store.ts';
import { DAY_MS } from '../platform/process/clock.ts';
import { cards, isOpen, states, type Card, type State } from '../submission/states.ts';
import { RECORD_SCHEMA } from '../submission/submission.ts';
import type { CheckedRecord } from '../submission/support-queries.ts';
import findings from './findings.json' with { type: 'json' };

/** Reconcile needs at most 35 s, so a record is overdue after this. */
const OVERDUE_MS = 300_000;
/** Retries end after three days. */
const OPEN_TOO_LONG_MS = 4 * DAY_MS;

export type Kind = keyof typeof findings;

interface KindCard {
  /** `problem`: a promise is or will be broken. `notice`: correct, but somebody should know. */
  readonly weight: 'problem' | 'notice';
  /** Continues "each record or account …". */
  readonly meaning: string;
}

export const kinds = findings as Readonly<Record<Kind, KindCard>>;

/** The id is a request's or an account's. The print changes with what was checked. */
export type Suspect = readonly [Kind, id: string, print: string];

/** The finding's name in the trail. */
export const findingName = (suspect: Suspect): string => suspect.join(' ');

export const kindNamed = (name: string): string => name.split(' ', 1)[0]!;

/** Leaves out what changes by itself, such as `dueAt`. */
export function printOf(
  record: CheckedRecord | undefined,
  account: CheckedAccount | undefined,
): string {
  const { state, schema, httpStatus, expiresAt, erasedAt, accountId, history } = record ?? {};
  const { _id, requestId, notifiedAt, releasedAt, closedAt, mail, activation } = account ?? {};
  const ofRecord = [state, schema, httpStatus, expiresAt, erasedAt, accountId];
  const ofAccount = [_id, requestId, notifiedAt, releasedAt, closedAt, mail?.possible];
  const all = [...ofRecord, history?.at(-1)?.state, ...ofAccount, activation?.usedAt];
  return createHash('sha256').update(JSON.stringify(all)).digest('hex').slice(0, 16);
}

/** `account` belongs to this record. */
export function checkRecord(
  record: CheckedRecord,
  account: CheckedAccount | undefined,
  options: {
    readonly now: Date;
    readonly onHold: ReadonlySet<string>;
  },
): Kind[] {
  const found = checkAlone(record);
  if (!states.includes(record.state)) return found;
  return [...found, ...checkAges(record, options), ...checkAccount(record, account)];
}

/** Checks what must be true after every write. */
export function checkAlone(record: CheckedRecord): Kind[] {
  const { state, schema, history, httpStatus, dueAt, expiresAt } = record;
  if (!states.includes(state)) return ['unknown_state'];
  const found: Kind[] = [];
  if (schema > RECORD_SCHEMA) found.push('newer_schema');
  if (history.at(-1)?.state !== state) found.push('history_disagrees');
  const { answered, kept }: Card = cards[state];
  if (!answered.includes(httpStatus)) found.push('wrong_answer');
  if (isOpen(state) && dueAt === undefined) found.push('never_due');
  if (kept !== 'days' && expiresAt !== undefined) found.push('deleted_too_soon');
  if (kept === 'days' && expiresAt === undefined) found.push('never_deleted');
  return found;
}

function checkAges(
  { state, dueAt, receivedAt, partnerId = '' }: CheckedRecord,
  { now, onHold }: { readonly now: Date; readonly onHold: ReadonlySet<string> },
): Kind[] {
  // An operator decides how long a hold lasts.
  if (!isOpen(state) || dueAt === undefined || onHold.has(partnerId)) return [];
  const found: Kind[] = [];
  const age = (date: Date): number => now.getTime() - date.getTime();
  if (age(dueAt) > OVERDUE_MS) found.push(state === 'recorded' ? 'overdue' : 'mail_waits');
  if (age(receivedAt) > OPEN_TOO_LONG_MS) found.push('open_too_long');
  return found;
}

/** In these states an account must exist, and the record must name it. */
const WITH_ACCOUNT: readonly State[] = ['account_created', 'completed', 'undeliverable'];
/** An attempt may have created an account and died; a retry finds it. */
const PERHAPS_WITH_ACCOUNT: readonly State[] = ['recorded', 'dead_lettered'];

/** Checks what must be true after every step. */
export function checkAccount(record: CheckedRecord, account: CheckedAccount | undefined): Kind[] {
  const { state, accountId, erasedAt, releasedAt: toReleaseAt } = record;
  if (erasedAt !== undefined) return account === undefined ? [] : ['erased_but_account'];
  const isPromised = WITH_ACCOUNT.includes(state);
  if (account === undefined)
    return isPromised || accountId !== undefined ? ['account_missing'] : [];
  if (toReleaseAt !== undefined && account.releasedAt === undefined)
    return ['account_not_released'];
  if (state === 'closed') {
    // A release ends the link, too; it may follow a reopen that was cut off.
    const isEnded = account.closedAt !== undefined || account.releasedAt !== undefined;
    return isEnded ? [] : ['account_not_closed'];
  }
  if (!isPromised) return PERHAPS_WITH_ACCOUNT.includes(state) ? [] : ['account_unexpected'];
  if (accountId !== account._id) return ['account_disagrees'];
  const { notifiedAt, releasedAt, activation } = account;
  const noted = [notifiedAt, releasedAt, activation?.usedAt].some((date) => date !== undefined);
  return state === 'completed' && !noted ? ['mail_not_noted'] : [];
}
