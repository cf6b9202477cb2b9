/** What an operator may do with a request, and why not: one rule for the commands and the pages. */
import type { Account } from '../../account/account.ts';
import { mayBounce } from '../../mail/late-bounce.ts';
import { isOpen, nextState, type Event, type State } from '../../submission/states.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { FoundSubmission } from './look-up.ts';
import { utc } from './words.ts';

/** `whyNot` continues a sentence that begins with the request's id. */
export interface Plan {
  readonly to?: State;
  readonly whyNot?: string;
  /** Possible in some minutes. */
  readonly later?: true;
  /** A worker holds the request. */
  readonly inHand?: true;
}

export function claimEnd(
  { state, claimedUntil }: Pick<SubmissionRecord, 'state' | 'claimedUntil'>,
  now: Date,
): Date | undefined {
  return isOpen(state) && claimedUntil !== undefined && claimedUntil > now
    ? claimedUntil
    : undefined;
}

export function stateAfter(
  { state, version, erasedAt }: SubmissionRecord,
  account: Account | undefined,
  event: Event,
): State | undefined {
  return nextState(state, event, {
    account: account !== undefined,
    claimed: version > 0,
    erased: erasedAt !== undefined,
  });
}

/** `whyNot` is `reason`, or `otherwise` if no state follows. */
function planTo(to: State | undefined, otherwise: string, reason?: string): Plan {
  return to !== undefined && reason === undefined ? { to } : { whyNot: reason ?? otherwise };
}

/** Ending a worker's claim during a hand-over could send two e-mails. */
function unlessClaimed(record: SubmissionRecord, now: Date, plan: Plan): Plan {
  const until = claimEnd(record, now);
  if (until === undefined) return plan;
  const whyNot = `is being worked on: it is free at ${utc(until)} UTC, or later if the worker goes on`;
  return { whyNot, inHand: true };
}

const HALF_RELEASED =
  'has a release that is under way or was cut off: "account release" completes it';

function whyNoWork(
  { erasedAt, releasedAt }: SubmissionRecord,
  account: Account | undefined,
): string | undefined {
  if (erasedAt !== undefined) return 'was erased: there is nothing to work on';
  if (account === undefined) return undefined;
  if (account.releasedAt !== undefined) return 'has a released account: the partner applies again';
  return releasedAt === undefined ? undefined : HALF_RELEASED;
}

function whyNoMail(
  { erasedAt, releasedAt }: SubmissionRecord,
  account: Account | undefined,
): string | undefined {
  if (erasedAt !== undefined) return 'was erased: there is nobody to mail';
  if (account === undefined) return 'has no account';
  if (account.releasedAt !== undefined) return 'has an account that was released';
  if (releasedAt !== undefined) return HALF_RELEASED;
  return linkUsed(account)
    ? 'has a link that has been used: the applicant can log in and change things there'
    : undefined;
}

type Rule = (record: FoundSubmission, account: Account | undefined, now: Date) => Plan;

const rules = {
  retry: (record, account, now) => {
    const { state } = record;
    const to = isOpen(state) ? state : stateAfter(record, account, 'retry');
    const whyNot = `is ${state}: nothing to retry`;
    return unlessClaimed(record, now, planTo(to, whyNot, whyNoWork(record, account)));
  },
  resend: (record, account) => {
    const { _id, state } = record;
    if (state === 'dead_lettered') return { whyNot: `is dead_lettered: use "retry ${_id}"` };
    if (state !== 'completed' && state !== 'undeliverable') {
      return {
        whyNot: `is ${state}: only a completed or undeliverable request has a mail to send again`,
      };
    }
    return planTo('account_created', '', whyNoMail(record, account));
  },
  close: (record, account, now) => {
    const { state } = record;
    // An interrupted close has left the account unclosed.
    const half = state === 'closed' && account !== undefined && account.closedAt === undefined;
    const to = half ? state : stateAfter(record, account, 'close');
    return unlessClaimed(record, now, planTo(to, `is ${state}: nothing to close`));
  },
  reopen: (record, account) => {
    const whyNot = `is ${record.state}: only a closed request is reopened`;
    return planTo(stateAfter(record, account, 'reopen'), whyNot, whyNoWork(record, account));
  },
  correctEmail: (record, account) => {
    const to = stateAfter(record, account, 'correct_address');
    return planTo(to, `is ${record.state}: its account is not mailed`, whyNoMail(record, account));
  },
  release: ({ state }, account) => {
    if (account === undefined) return { whyNot: `is ${state} and has no account` };
    if (account.releasedAt !== undefined)
      return { whyNot: `has account ${account._id}, which was released before` };
    return isOpen(state)
      ? { whyNot: `is still being worked on (${state}): release it once it is settled` }
      : { to: state };
  },
  bounce: mayBounce,
} satisfies Record<string, Rule>;

export type PlannedOrder = keyof typeof rules;

export function planOf(
  order: PlannedOrder,
  record: FoundSubmission,
  account: Account | undefined,
  now: Date,
): Plan {
  // Nobody waits for a test, and its account is in another collection.
  return record.test
    ? { whyNot: 'is a test: send another one' }
    : rules[order](record, account, now);
}

/** A login application may remove `activation` instead of recording the use. */
export function linkUsed({ notifiedAt, activation }: Account): boolean {
  return activation === undefined ? notifiedAt !== undefined : activation.usedAt !== undefined;
}
