/** What an operator may do with a request, and why not: one rule for the commands and the pages. */
import type { Account } from '../account/account.ts';
import { cardOf, isOpen, nextState, type Event, type State } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { utc } from './times.ts';

/** `whyNot` continues a sentence that begins with the request's id. */
export type Plan =
  | { readonly to: State; readonly whyNot?: never }
  | { readonly to?: never; readonly whyNot: string };

export type Planned = Pick<
  SubmissionRecord,
  '_id' | 'state' | 'version' | 'erasedAt' | 'claimedUntil'
>;

export function claimEnd(
  { state, claimedUntil }: Pick<Planned, 'state' | 'claimedUntil'>,
  now: Date,
): Date | undefined {
  return isOpen(state) && claimedUntil !== undefined && claimedUntil > now
    ? claimedUntil
    : undefined;
}

/** Undefined if no worker has the request. */
export function claimInWords(
  record: Pick<Planned, 'state' | 'claimedUntil'>,
  now: Date,
): string | undefined {
  const until = claimEnd(record, now);
  return until === undefined
    ? undefined
    : `is being worked on: it is free at ${utc(until)} UTC, or later if the worker goes on`;
}

export function stateAfter(
  { state, version, erasedAt }: Planned,
  account: Account | undefined,
  event: Event,
): State | undefined {
  const facts = {
    account: account !== undefined,
    claimed: version > 0,
    erased: erasedAt !== undefined,
  };
  return nextState(state, event, facts);
}

export function planRetry(record: Planned, account: Account | undefined): Plan {
  const { state, erasedAt } = record;
  if (erasedAt !== undefined) return { whyNot: 'was erased: there is nothing to work on' };
  if (account?.releasedAt !== undefined)
    return { whyNot: 'has a released account: the partner applies again' };
  const to = isOpen(state) ? state : stateAfter(record, account, 'retry');
  if (to === undefined)
    return { whyNot: `is ${state} (${cardOf(state)?.meaning}): nothing to retry` };
  return { to };
}

export function planResend(record: Planned, account: Account | undefined): Plan {
  const { _id, state } = record;
  if (state === 'dead_lettered') return { whyNot: `is dead_lettered: use "retry ${_id}"` };
  if (state !== 'completed' && state !== 'undeliverable') {
    return {
      whyNot: `is ${state}: only a completed or undeliverable request has a mail to send again`,
    };
  }
  const whyNot = whyNoMail(record, account);
  return whyNot === undefined ? { to: 'account_created' } : { whyNot };
}

export function planClose(record: Planned, account: Account | undefined): Plan {
  const { state } = record;
  // A close that was cut off has left the account.
  const half = state === 'closed' && account !== undefined && account.closedAt === undefined;
  const to = half ? state : stateAfter(record, account, 'close');
  return to === undefined
    ? { whyNot: `is ${state} (${cardOf(state)?.meaning}): nothing to close` }
    : { to };
}

export function planReopen(record: Planned, account: Account | undefined): Plan {
  const { state, erasedAt } = record;
  if (erasedAt !== undefined) return { whyNot: 'was erased: there is nothing to work on' };
  if (account?.releasedAt !== undefined)
    return { whyNot: 'has a released account: the partner applies again' };
  const to = stateAfter(record, account, 'reopen');
  return to === undefined ? { whyNot: `is ${state}: only a closed request is reopened` } : { to };
}

export function planCorrectEmail(record: Planned, account: Account | undefined): Plan {
  const whyNot = whyNoMail(record, account);
  if (whyNot !== undefined) return { whyNot };
  const to = stateAfter(record, account, 'correct_address');
  return to === undefined ? { whyNot: `is ${record.state}: its account is not mailed` } : { to };
}

export function planRelease({ state }: Planned, account: Account | undefined): Plan {
  if (account === undefined) return { whyNot: `is ${state} and has no account` };
  if (account.releasedAt !== undefined)
    return { whyNot: `has account ${account._id}, which was released before` };
  return isOpen(state)
    ? { whyNot: `is still being worked on (${state}): release it once it is settled` }
    : { to: state };
}

/** With `later`, the same bounce may be reported again in some minutes. */
export function planBounce(
  record: Planned & { readonly pastRetention?: true },
  account: Account | undefined,
): Plan & { readonly later?: true } {
  const { state } = record;
  if (account === undefined) return { whyNot: `is ${state} and has no account` };
  if (account.releasedAt !== undefined) return { whyNot: 'has an account that was released' };
  if (account.activation?.usedAt !== undefined)
    return { whyNot: 'has a link that has been used, so the e-mail arrived: nothing was changed' };
  if (record.pastRetention === true)
    return { whyNot: 'is past its retention: nothing was changed' };
  if (state === 'account_created') {
    return {
      whyNot: `is account_created: its e-mail is not noted as sent yet, so report it again later`,
      later: true,
    };
  }
  return state === 'completed'
    ? { to: 'undeliverable' }
    : { whyNot: `is ${state}: only the e-mail of a completed request can bounce later` };
}

function whyNoMail({ erasedAt }: Planned, account: Account | undefined): string | undefined {
  if (erasedAt !== undefined) return 'was erased: there is nobody to mail';
  if (account === undefined) return 'has no account';
  if (account.releasedAt !== undefined) return 'has an account that was released';
  return linkUsed(account)
    ? 'has a link that has been used: the applicant can log in and change things there'
    : undefined;
}

/** A login application may remove `activation` instead of recording the use. */
export function linkUsed({ notifiedAt, activation }: Account): boolean {
  return activation === undefined ? notifiedAt !== undefined : activation.usedAt !== undefined;
}
