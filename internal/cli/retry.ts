/** `retry` and `resend`: let a processor work on a request or e-mail its applicant again. */
import { defined } from '../platform/defined.ts';
import type { Account } from '../account/account.ts';
import type { PlannedMove, Seen } from '../submission/operator-moves.ts';
import { cards, isOpen, nextState, type ReopeningEvent } from '../submission/states.ts';
import { isBounced, type SubmissionRecord } from '../submission/submission.ts';
import {
  CommandError,
  EXIT,
  type Call,
  type Command,
  type Desk,
  type ExitCode,
} from './command.ts';
import type { FoundSubmission } from '../view/look-up.ts';
import { submissionById } from './command.ts';
import { WALK_PAGE } from '../platform/mongo-read.ts';
import { onlyOne, orderMany, queryOptions, type Order, type Plan } from './bulk-order.ts';
import { maybeRequestId } from './options.ts';
import { changedMeanwhile, whenDue } from './waiting-reason.ts';
import { claimInWords } from '../view/plans.ts';

export const retry: Command = {
  name: 'retry',
  positionals: [maybeRequestId],
  about: 'have a dead-lettered or undeliverable request worked on again',
  details:
    'One REQUEST_ID is retried at once. With --state, all that match are counted, and retried only with --yes; Ctrl-C stops it between two pages. A request that waits for its next attempt is due now; one that a worker has in hand is left alone. Attempts count from one again.',
  options: [...queryOptions, 'yes', 'as', 'why'],
  examples: [
    'retry req_01m7yefdj3fantjpk5mzvj8mwh --why "relay is back"',
    'retry --state dead_lettered --since 24h',
    'retry --state dead_lettered --since 24h --yes --as jane',
  ],
  run: (call) => (call.positionals[0] === undefined ? orderMany(call, retryOrder) : retryOne(call)),
};

export const resend: Command = {
  name: 'resend',
  positionals: [maybeRequestId],
  about: 'mail the login instructions once more, with the same link',
  details:
    'For a completed or undeliverable request whose link has not been used. The link works for seven more days. With --state, all that match are counted, and mailed only with --yes; Ctrl-C stops it between two pages. For a wrong address: "account correct-email".',
  options: [...queryOptions, 'yes', 'as', 'why'],
  examples: [
    'resend --state completed --partner acme --since 24h --rate 10',
    'resend req_01m7yefdj3fantjpk5mzvj8mwh',
    'resend req_01m7yefdj3fantjpk5mzvj8mwh --yes --why "applicant lost the mail"',
  ],
  run: (call) =>
    call.positionals[0] === undefined ? orderMany(call, resendOrder) : resendMail(call),
};

async function retryOne(call: Call): Promise<ExitCode> {
  onlyOne(call, 'retry');
  const { desk, out, values, clock } = call;
  const record = await submissionById(call.positionals[0] ?? '', desk, clock.now());
  const { to, whyNot } = await tryAgain(record, call);
  if (to === undefined) throw new CommandError(`${record._id} ${whyNot}`);
  const next = await whenDue(record, desk);
  if (values.json) out.json({ request_id: record._id, from: record.state, to, ...next.json });
  else out.line(`${record._id}  ${record.state} → ${to}; ${next.text}`);
  return EXIT.ok;
}

const retryOrder: Order = {
  action: 'retry',
  past: 'retried',
  states: ['dead_lettered', 'undeliverable'],
  plan: planRetry,
  atOnce: WALK_PAGE,
  act: async (planned, { desk }) => {
    const ready: PlannedMove[] = [];
    for (const { record, account, to } of planned) {
      if (await wantsMail(record, account, desk))
        ready.push({ seen: record, to, accountId: account?._id });
    }
    const reason = `operator retry by ${desk.trail.by}`;
    return ready.length === 0 ? 0 : desk.moves.moveAll('retry', ready, reason);
  },
};

const resendOrder: Order = {
  action: 'resend',
  past: 'resent',
  states: ['completed', 'undeliverable'],
  plan: (record, account) => {
    const whyNot = whyNoMail(record, account);
    return whyNot === undefined ? { to: 'account_created' } : { whyNot };
  },
  // Each account gets a new version of its e-mail.
  atOnce: 1,
  act: async ([planned], { desk }) => {
    const { record, account } = planned ?? {};
    if (record === undefined || account === undefined) return 0;
    return (await mailAgain(record, account, desk)) ? 1 : 0;
  },
};

async function resendMail(call: Call): Promise<ExitCode> {
  onlyOne(call, 'resend');
  const { desk, out, values, clock } = call;
  const record = await submissionById(call.positionals[0] ?? '', desk, clock.now());
  const { _id: id, state } = record;
  if (state === 'dead_lettered')
    throw new CommandError(`${id} is dead_lettered: use "retry ${id}"`);
  if (state !== 'completed' && state !== 'undeliverable') {
    throw new CommandError(
      `${id} is ${state}: only a completed or undeliverable request has a mail to send again`,
    );
  }
  const account = await accountToMail(record, desk);
  if (!values.yes) return dryRun(call, record, account, 'the same link is mailed again');
  const done = await desk.trail.record(
    { action: 'resend', requestId: id, accountId: account._id },
    () => mailAgain(record, account, desk),
  );
  if (!done) throw changedMeanwhile(record);
  const next = await whenDue(record, desk);
  const to = 'account_created';
  if (values.json) out.json({ request_id: id, from: state, to, ...next.json });
  else out.line(`${id}  ${state} → ${to}; the same link is mailed again; ${next.text}`);
  return EXIT.ok;
}

/** The account comes first, so that a repeat works after an interruption. */
async function mailAgain(record: SubmissionRecord, account: Account, desk: Desk): Promise<boolean> {
  if (!(await desk.corrections.mailAgain(account))) return false;
  const again = record.state === 'completed' ? 'resend' : 'retry';
  const reason = `operator resend by ${desk.trail.by}`;
  return (
    (await reopen(desk, record, again, { accountId: account._id, reason })) === 'account_created'
  );
}

/**
 * Before a retry: an account whose e-mail came back wants another one. False if the account has
 * changed. The account comes first, so that a repeat works after an interruption.
 */
async function wantsMail(
  record: SubmissionRecord,
  account: Account | undefined,
  desk: Desk,
): Promise<boolean> {
  if (account?.notifiedAt === undefined || linkUsed(account) || !isBounced(record)) return true;
  return desk.corrections.mailAgain(account);
}

/** Throws `CommandError` if an e-mail is of no use. */
export async function accountToMail(record: SubmissionRecord, desk: Desk): Promise<Account> {
  const account =
    record.erasedAt === undefined ? await desk.accounts.find('requestId', record._id) : undefined;
  const whyNot = whyNoMail(record, account);
  if (account === undefined || whyNot !== undefined) throw new CommandError(whyNot ?? '');
  return account;
}

function whyNoMail(record: SubmissionRecord, account: Account | undefined): string | undefined {
  const id = record._id;
  if (record.erasedAt !== undefined) return `${id} was erased: there is nobody to mail`;
  if (account === undefined) return `${id} has no account`;
  if (account.releasedAt !== undefined) return `the account of ${id} was released`;
  return linkUsed(account)
    ? `the link of ${id} has been used: the applicant can log in and change things there`
    : undefined;
}

/** A login application may remove `activation` instead of recording the use. */
function linkUsed({ notifiedAt, activation }: Account): boolean {
  return activation === undefined ? notifiedAt !== undefined : activation.usedAt !== undefined;
}

/** Recreates a record that is past its retention. */
export function reopen(
  desk: Desk,
  record: Seen & Pick<FoundSubmission, 'erasedAt'>,
  event: ReopeningEvent,
  options: { readonly accountId: string | undefined; readonly reason: string },
) {
  return isPast(record)
    ? desk.moves.remake(stored(record), options.reason)
    : desk.moves.reopen(record, event, options);
}

function isPast(record: Seen | FoundSubmission): record is FoundSubmission {
  return 'pastRetention' in record;
}

function stored({ pastRetention: _past, ...record }: FoundSubmission): SubmissionRecord {
  return record;
}

function planRetry(record: SubmissionRecord, account: Account | undefined): Plan {
  const { state } = record;
  if (record.erasedAt !== undefined) return { whyNot: 'was erased: there is nothing to work on' };
  if (account?.releasedAt !== undefined)
    return { whyNot: 'has a released account: the partner applies again' };
  const facts = { account: account !== undefined, claimed: record.version > 0, erased: false };
  const to = isOpen(state) ? state : nextState(state, 'retry', facts);
  if (to === undefined || !isOpen(to))
    return { whyNot: `is ${state} (${cards[state].meaning}): nothing to retry` };
  return { to };
}

async function tryAgain(record: SubmissionRecord, { desk, clock }: Call): Promise<Plan> {
  const { _id: requestId, state } = record;
  // Ending a worker's claim during a hand-over would send two e-mails.
  const claimed = claimInWords(record, clock.now());
  if (claimed !== undefined) return { whyNot: claimed };
  const account = await desk.accounts.find('requestId', requestId);
  const plan = planRetry(record, account);
  if (plan.to === undefined) return plan;
  const accountId = account?._id;
  const done = await desk.trail.record(
    { action: 'retry', requestId, ...defined({ accountId }) },
    async () => {
      if (isOpen(state)) return desk.moves.hurry(record);
      if (!(await wantsMail(record, account, desk))) return false;
      const reason = `operator retry by ${desk.trail.by}`;
      return (await reopen(desk, record, 'retry', { accountId, reason })) === plan.to;
    },
  );
  return done ? plan : { whyNot: 'changed meanwhile: look at it with "show" and decide again' };
}

export function dryRun(
  { out, values }: Call,
  record: SubmissionRecord,
  account: Account,
  what: string,
): ExitCode {
  if (values.json)
    out.json({ dry_run: true, request_id: record._id, account_id: account._id, would: what });
  else
    out.line(
      `${account._id} of ${record._id} (${record.state}): ${what}\nnothing was changed; add --yes to do it`,
    );
  return EXIT.ok;
}
