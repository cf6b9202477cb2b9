/** `account correct-email` and `account release`: correct or free what was mistyped. */
import type { Account } from '../account/account.ts';
import type { Seen } from '../submission/operator-moves.ts';
import { isOpen, nextState } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { REOPEN_TRIES } from './limits.ts';
import { address, requestId } from './options.ts';
import { printable } from '../platform/terminal.ts';
import { maskApplicant } from '../view/mask.ts';
import { submissionById } from './command.ts';
import { accountToMail, dryRun, reopen } from './retry.ts';
import { changedMeanwhile, whenDue } from './waiting-reason.ts';
import { normalizeEmail } from '../application/identity.ts';

export const correctEmail: Command = {
  name: 'account correct-email',
  positionals: [requestId, address],
  about: 'give an account the right e-mail address and mail it',
  details:
    'Links that went to the old address stop working at once and a new one is mailed. Given again after it was cut off, it finishes what is left. Prints the address as it was given, so that you can check it. Not for an account whose link has been used.',
  options: ['yes', 'as', 'why'],
  examples: [
    'account correct-email req_01m7yefdj3fantjpk5mzvj8mwh jane@example.com',
    'account correct-email req_01m7yefdj3fantjpk5mzvj8mwh jane@example.com --yes --why "ticket 4711"',
  ],
  run: correctAddress,
};

export const release: Command = {
  name: 'account release',
  positionals: [requestId],
  about: 'free the e-mail address and the EIN of an account for a new application',
  details:
    'For an EIN or address that was mistyped and belongs to someone else. The account stays under its id with what it held, its link stops working, and the partner may apply again. This cannot be undone.',
  options: ['yes', 'as', 'why'],
  examples: [
    'account release req_01m7yefdj3fantjpk5mzvj8mwh --yes --as jane --why "EIN of another business"',
  ],
  run: releaseAccount,
};

async function correctAddress(call: Call): Promise<ExitCode> {
  const { out, values, clock } = call;
  const [id = '', email = ''] = call.positionals;
  const { desk } = call;
  const record = await submissionById(id, desk, clock.now());
  const account = await accountToMail(record, desk);
  if (!canMailAgain(record))
    throw new CommandError(`${record._id} is ${record.state}: its account is not mailed`);
  const left = leftToDo(record, account, email);
  if (left === undefined) throw new CommandError(`${account._id} has this address already`);
  const other = await desk.accounts.find('emailNormalized', normalizeEmail(email));
  if (other !== undefined && other._id !== account._id) throw taken(other.requestId);

  const masked = (one: string) => maskApplicant({ email: one }, false).email;
  // Only the operator can see a typing error; programs get the address masked.
  const shown = values.json ? masked(email) : printable(email);
  const change = left === 'everything' ? `${masked(account.email)} → ${shown}` : shown;
  const would = {
    everything: `its address becomes ${change} and a new link is mailed`,
    record_and_mail: `a correction to ${shown} was cut off: it is finished and a new link is mailed`,
    record: `a correction to ${shown} was cut off after its e-mail: its request is brought in step`,
  }[left];
  if (!values.yes) return dryRun(call, record, account, would);
  let result = 'changed' as Corrected;
  await desk.trail.record(
    { action: 'account correct-email', requestId: record._id, accountId: account._id },
    async () => {
      // A worker about to send to the old address must lose its claim first.
      const corrected = {
        ...record,
        applicant: { ...record.applicant, email: normalizeEmail(email) },
      };
      const seen =
        left !== 'record' && isOpen(record.state) ? await desk.moves.claim(record) : corrected;
      if (seen !== undefined) result = await correctAndReopen(call, seen, account, email, left);
      return result === 'done' || result === 'not_mailed';
    },
  );
  if (result === 'taken') throw taken('another account');
  if (result === 'changed') throw changedMeanwhile(record);
  if (result === 'not_mailed') {
    throw new CommandError(
      `${account._id} has the address and its old link is void, but ${record._id} changed meanwhile: ` +
        'give the same command again, and it mails the new link',
    );
  }
  const next = left === 'record' ? undefined : await whenDue(record, desk);
  const ids = { request_id: record._id, account_id: account._id };
  if (values.json) out.json({ ...ids, result: 'corrected', ...next?.json });
  else if (next === undefined)
    out.line(
      `${account._id}  ${change}; finished: nothing is mailed, the e-mail has gone out before`,
    );
  else
    out.line(`${account._id}  ${change}; the old link is void, a new one is mailed; ${next.text}`);
  return EXIT.ok;
}

/** `not_mailed`: only the account was changed. */
type Corrected = 'done' | 'changed' | 'taken' | 'not_mailed';
type Left = 'everything' | 'record_and_mail' | 'record';

/** A repeat completes a correction that was cut off after the account was written. */
function leftToDo(record: SubmissionRecord, account: Account, email: string): Left | undefined {
  if (account.email !== email) return 'everything';
  const corrected = account.linkVersion !== undefined;
  if (corrected && account.activation === undefined && account.notifiedAt === undefined)
    return 'record_and_mail';
  const { applicant } = record;
  return applicant !== undefined && applicant.email !== normalizeEmail(email)
    ? 'record'
    : undefined;
}

async function correctAndReopen(
  { desk }: Call,
  found: Seen,
  account: Account,
  email: string,
  left: Left,
): Promise<Corrected> {
  if (left === 'everything') {
    const result = await desk.corrections.correctEmail(account, email);
    if (result !== 'done') return result;
  }
  await desk.moves.correctEmail(found._id, normalizeEmail(email));
  if (left === 'record') return 'done';
  const reason = `operator corrected the address, by ${desk.trail.by}`;
  let seen = found;
  for (let tries = 1; tries <= REOPEN_TRIES; tries += 1) {
    const to = await reopen(desk, seen, 'correct_address', { accountId: account._id, reason });
    if (to === 'account_created') return 'done';
    const now = await desk.submissions.byId(found._id);
    // Another operator was faster, and a worker uses the account's current address.
    if (now?.state === 'account_created') return 'done';
    if (now === undefined || !canMailAgain(now)) return 'not_mailed';
    seen = now;
  }
  return 'not_mailed';
}

function canMailAgain({ state }: Seen): boolean {
  const facts = { account: true, claimed: true, erased: false };
  return nextState(state, 'correct_address', facts) !== undefined;
}

function taken(holder: string): CommandError {
  return new CommandError(
    `the address belongs to another account (${holder}); nothing was changed`,
  );
}

async function releaseAccount(call: Call): Promise<ExitCode> {
  const { desk, out, values, clock } = call;
  const record = await submissionById(call.positionals[0] ?? '', desk, clock.now());
  const account = await desk.accounts.find('requestId', record._id);
  if (account === undefined)
    throw new CommandError(`${record._id} is ${record.state} and has no account`);
  if (account.releasedAt !== undefined)
    throw new CommandError(`${account._id} was released before`);
  if (isOpen(record.state)) {
    throw new CommandError(
      `${record._id} is still being worked on (${record.state}): release it once it is settled`,
    );
  }
  if (!values.yes)
    return dryRun(
      call,
      record,
      account,
      'its e-mail address and EIN are given free, its link ends',
    );
  const done = await desk.trail.record(
    { action: 'account release', requestId: record._id, accountId: account._id },
    () => desk.corrections.release(account),
  );
  if (!done) throw changedMeanwhile(record);
  if (values.json)
    out.json({ request_id: record._id, account_id: account._id, result: 'released' });
  else
    out.line(`${account._id}  released: the e-mail address and the EIN may be applied with again`);
  return EXIT.ok;
}
