/** `account correct-email` and `account release`: correct or free what was mistyped. */
import type { Account } from '../account/account.ts';
import { normalizeEmail } from '../application/identity.ts';
import { printable } from '../platform/terminal.ts';
import type { Seen } from '../submission/operator-moves.ts';
import { isOpen } from '../submission/states.ts';
import { maskEmail } from '../view/mask.ts';
import { stateAfter } from '../view/plans.ts';
import { CommandError, type Desk } from './command.ts';
import { REOPEN_TRIES } from './limits.ts';
import { address, requestId } from './options.ts';
import { commandOf } from './order.ts';
import {
  isUnchanged,
  planned,
  requestTarget,
  requestWords,
  stored,
  whenDue,
  type RequestTarget,
} from './request-target.ts';

/** What a correction that was cut off has left to do. */
type Left = 'everything' | 'record_and_mail' | 'record' | 'nothing';

interface Correction extends RequestTarget {
  readonly email: string;
  readonly left: Left;
}

export const correctEmail = commandOf<Correction>({
  name: 'account correct-email',
  positionals: [requestId, address],
  about: 'give an account the right e-mail address and mail it',
  details:
    'Links that went to the old address stop working at once and a new one is mailed. Given again after it was cut off, it finishes what is left. Prints the address as it was given, so that you can check it. Not for an account whose link has been used.',
  examples: [
    'account correct-email req_01m7yefdj3fantjpk5mzvj8mwh jane@example.com',
    'account correct-email req_01m7yefdj3fantjpk5mzvj8mwh jane@example.com --yes --why "ticket 4711"',
  ],
  select: async (call) => {
    const [id = '', email = ''] = call.positionals;
    const target = await requestTarget(id, call);
    if (planned('correctEmail')(target, call).to !== undefined) {
      const other = await call.desk.accounts.find('emailNormalized', normalizeEmail(email));
      if (other !== undefined && other._id !== target.account?._id) throw taken(other.requestId);
    }
    return { ...target, email, left: leftToDo(target, email) };
  },
  plan: (target, call) => {
    const plan = planned('correctEmail')(target, call);
    return plan.to !== undefined && target.left === 'nothing'
      ? { whyNot: `has account ${target.account?._id}, which has this address already` }
      : plan;
  },
  act: ([target], { desk }) => correct(target!, desk),
  words: (target, { values }) => {
    const { account, email, left } = target;
    // Only the operator can see a typing error; programs get the address masked.
    const shown = values.json ? maskEmail(email) : printable(email);
    const change = left === 'everything' ? `${maskEmail(account?.email ?? '')} → ${shown}` : shown;
    const would = {
      everything: `its address becomes ${change} and a new link is mailed`,
      record_and_mail: `a correction to ${shown} was cut off: it is finished and a new link is mailed`,
      record: `a correction to ${shown} was cut off after its e-mail: its request is brought in step`,
      nothing: '',
    }[left];
    const next = whenDue(target);
    const mailed =
      left === 'record'
        ? 'finished: nothing is mailed, the e-mail has gone out before'
        : `the old link is void, a new one is mailed; ${next.text}`;
    return requestWords(target, {
      would,
      done: `${account?._id}  ${change}; ${mailed}`,
      json: {
        account_id: account?._id,
        result: 'corrected',
        ...(left === 'record' ? {} : next.json),
      },
    });
  },
});

export const release = commandOf<RequestTarget>({
  name: 'account release',
  positionals: [requestId],
  about: 'free the e-mail address and the EIN of an account for a new application',
  details:
    'For an EIN or address that was mistyped and belongs to someone else. The account stays under its id with what it held, its link stops working, and the partner may apply again. This cannot be undone.',
  examples: [
    'account release req_01m7yefdj3fantjpk5mzvj8mwh --yes --as jane --why "EIN of another business"',
  ],
  final: true,
  select: (call) => requestTarget(call.positionals[0] ?? '', call),
  plan: planned('release'),
  act: async ([target], { desk }) => {
    const unchanged = await isUnchanged(target!, desk);
    return unchanged && (await desk.corrections.release(target!.account!)) ? 1 : 0;
  },
  words: (target) => {
    const id = target.account?._id;
    return requestWords(target, {
      would: 'its e-mail address and EIN are given free, its link ends',
      done: `${id}  released: the e-mail address and the EIN may be applied with again`,
      json: { account_id: id, result: 'released' },
    });
  },
});

/** A repeat completes a correction that was cut off after the account was written. */
function leftToDo({ record, account }: RequestTarget, email: string): Left {
  if (account?.email !== email) return 'everything';
  const corrected = account.linkVersion !== undefined;
  if (corrected && account.activation === undefined && account.notifiedAt === undefined)
    return 'record_and_mail';
  const { applicant } = record;
  return applicant !== undefined && applicant.email !== normalizeEmail(email)
    ? 'record'
    : 'nothing';
}

async function correct(target: Correction, desk: Desk): Promise<number | CommandError> {
  const { email, left, account } = target;
  const normalized = normalizeEmail(email);
  const record = { ...target.record, applicant: { ...target.record.applicant, email: normalized } };
  // A worker about to send to the old address must lose its claim first.
  const takes = left !== 'record' && isOpen(record.state);
  const seen = takes ? await desk.moves.claim(record) : record;
  if (seen === undefined || account === undefined) return 0;
  if (!takes && !(await isUnchanged(target, desk))) return 0;
  const corrects = left === 'everything';
  if (corrects && !(await desk.corrections.correctEmail(account, email, takes))) return 0;
  await desk.moves.correctEmail(record._id, normalized);
  if (left === 'record' || (await mailAgain(seen, account, desk))) return 1;
  return new CommandError(
    `${account._id} has the address and its old link is void, but ${record._id} changed meanwhile: give the same command again, and it mails the new link`,
  );
}

/** False if the request changed meanwhile, so that its account is not mailed. */
async function mailAgain(found: Seen, account: Account, desk: Desk): Promise<boolean> {
  const reason = `operator corrected the address, by ${desk.trail.by}`;
  let seen = found;
  for (let tries = 1; tries <= REOPEN_TRIES; tries += 1) {
    const mails =
      'pastRetention' in seen
        ? await desk.moves.remake(stored(seen as Correction['record']), reason)
        : await desk.moves.move('correct_address', { seen, accountId: account._id }, reason);
    if (mails) return true;
    const now = await desk.submissions.byId(found._id);
    // Another operator was faster, and a worker uses the account's current address.
    if (now?.state === 'account_created') return true;
    if (now === undefined || stateAfter(now, account, 'correct_address') === undefined) break;
    seen = now;
  }
  return false;
}

function taken(holder: string): CommandError {
  return new CommandError(
    `the address belongs to another account (${holder}); nothing was changed`,
  );
}
