/** What must be true of every record and every account. */
import type { CheckedAccount } from '../account/account-queries.ts';
import { DAY_MS } from '../platform/clock.ts';
import { cards, isOpen, states, type Card, type State } from '../submission/states.ts';
import { RECORD_SCHEMA } from '../submission/submission.ts';
import type { CheckedRecord } from '../submission/support-queries.ts';

/** Reconcile needs at most 35 s, so a record is overdue after this. */
const OVERDUE_MS = 300_000;
/** Retries end after three days. */
const OPEN_TOO_LONG_MS = 4 * DAY_MS;

/** `problem`: a promise is or will be broken. `notice`: correct, but somebody should know. */
type Weight = 'problem' | 'notice';

export const kinds = {
  unknown_state: ['problem', 'is in a state this version does not know, so nobody works on it'],
  newer_schema: ['notice', 'was written by a newer version and is left alone'],
  history_disagrees: ['problem', 'has a history that does not end in its state'],
  wrong_answer: ['problem', 'is in a state that does not go with what the partner was answered'],
  never_due: ['problem', 'is open, but has no time at which anyone looks at it'],
  overdue: ['problem', 'should have been worked on by now: does a processor run?'],
  mail_waits: [
    'notice',
    'waits in the line of mails: does a processor run, and does the relay take mail?',
  ],
  open_too_long: ['notice', 'is still open after days: is the mail server away?'],
  never_deleted: ['problem', 'is settled, but has no date until which it is kept'],
  deleted_too_soon: ['problem', 'would be deleted, though it still has to be looked at'],
  account_missing: ['problem', 'should have an account, but there is none'],
  account_unexpected: ['problem', 'has an account, though it should have none'],
  account_disagrees: ['problem', 'names another account than the one made for it'],
  account_not_closed: ['problem', 'is closed, but its account is not: close it again'],
  mail_not_noted: ['problem', 'is completed, but its account does not say that the mail is out'],
  account_without_request: ['problem', 'is an account whose request is not there'],
  request_expired_or_lost: [
    'notice',
    'is an account whose request is not there: lost, or past a retention that was shorter then',
  ],
  erased_but_account: ['problem', 'was erased, but an account was made meanwhile: erase it again'],
  mailed_twice: ['notice', 'may have reached its applicant more than once'],
} as const satisfies Record<string, readonly [Weight, string]>;
export type Kind = keyof typeof kinds;

/** `account` belongs to this record. */
export function checkRecord(
  record: CheckedRecord,
  account: CheckedAccount | undefined,
  options: {
    readonly now: Date;
    readonly onHold: ReadonlySet<string>;
  },
): Kind[] {
  const found: Kind[] = [];
  if (!states.includes(record.state)) return ['unknown_state'];
  if (record.schema > RECORD_SCHEMA) found.push('newer_schema');
  if (record.history.at(-1)?.state !== record.state) found.push('history_disagrees');
  const { answered }: Card = cards[record.state];
  if (!answered.includes(record.httpStatus)) found.push('wrong_answer');
  found.push(...checkDates(record, options), ...checkAccount(record, account));
  return found;
}

function checkDates(
  { state, dueAt, expiresAt, receivedAt, partnerId = '' }: CheckedRecord,
  { now, onHold }: { readonly now: Date; readonly onHold: ReadonlySet<string> },
): Kind[] {
  const found: Kind[] = [];
  const age = (date: Date): number => now.getTime() - date.getTime();
  if (isOpen(state) && dueAt === undefined) found.push('never_due');
  // An operator decides how long a hold lasts.
  else if (isOpen(state) && !onHold.has(partnerId)) {
    if (age(dueAt!) > OVERDUE_MS) found.push(state === 'recorded' ? 'overdue' : 'mail_waits');
    if (age(receivedAt) > OPEN_TOO_LONG_MS) found.push('open_too_long');
  }
  const kept = cards[state].kept !== 'days';
  if (kept && expiresAt !== undefined) found.push('deleted_too_soon');
  if (!kept && expiresAt === undefined) found.push('never_deleted');
  return found;
}

/** Their accounts are promised, and named by the record. */
const WITH_ACCOUNT: readonly State[] = ['account_created', 'completed', 'undeliverable'];
/** The attempt that created the account may have died; a retry finds it. */
const PERHAPS_WITH_ACCOUNT: readonly State[] = ['recorded', 'dead_lettered'];

function checkAccount(record: CheckedRecord, account: CheckedAccount | undefined): Kind[] {
  const { state, accountId, erasedAt } = record;
  if (erasedAt !== undefined) return account === undefined ? [] : ['erased_but_account'];
  const isPromised = WITH_ACCOUNT.includes(state);
  if (account === undefined)
    return isPromised || accountId !== undefined ? ['account_missing'] : [];
  if (state === 'closed') return account.closedAt === undefined ? ['account_not_closed'] : [];
  if (!isPromised) return PERHAPS_WITH_ACCOUNT.includes(state) ? [] : ['account_unexpected'];
  if (accountId !== account._id) return ['account_disagrees'];
  const { notifiedAt, releasedAt, activation } = account;
  const noted = [notifiedAt, releasedAt, activation?.usedAt].some((date) => date !== undefined);
  return state === 'completed' && !noted ? ['mail_not_noted'] : [];
}
