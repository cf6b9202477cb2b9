/** `account correct-email` and `account release`: correct or free what was mistyped. */
import { maskEmail, normalizeEmail } from '../application/fields.ts';
import { printable } from '../platform/terminal.ts';
import { isOpen } from '../submission/states.ts';
import { CommandError, type Desk } from './command.ts';
import { address, requestId } from './options.ts';
import { oneCommandOf } from './order.ts';
import {
  isUnchanged,
  move,
  planned,
  requestTarget,
  requestWords,
  whenDue,
  type RequestTarget,
} from './requests.ts';

/** What a correction that was cut off has left to do. */
type Left = 'everything' | 'record_and_mail' | 'record' | 'nothing';

interface Correction extends RequestTarget {
  readonly email: string;
  readonly left: Left;
}

export const correctEmail = oneCommandOf<Correction>({
  name: 'account correct-email',
  positionals: [requestId, address],
  select: async (call) => {
    const [, email = ''] = call.positionals;
    const target = await requestTarget(call);
    if (planned('correctEmail')(target, call).to !== undefined) {
      const other = await call.desk.accounts.find('emailNormalized', normalizeEmail(email));
      if (other !== undefined && other._id !== target.account?._id)
        throw new CommandError(
          `the address belongs to another account (${other.requestId}); nothing was changed`,
        );
    }
    return { ...target, email, left: leftToDo(target, email) };
  },
  plan: (target, call) => {
    const plan = planned('correctEmail')(target, call);
    return plan.to !== undefined && target.left === 'nothing'
      ? { whyNot: `has account ${target.account?._id}, which has this address already` }
      : plan;
  },
  act: (target, { desk }) => correct(target, desk),
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

export const release = oneCommandOf<RequestTarget>({
  name: 'account release',
  positionals: [requestId],
  final: true,
  select: requestTarget,
  plan: planned('release'),
  act: async (target, { desk }) =>
    (await isUnchanged(target, desk)) && desk.corrections.release(target.account!),
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

/** False if the request or its account has changed. */
async function correct(target: Correction, desk: Desk): Promise<boolean> {
  const { record, account, email, left } = target;
  const { moves, corrections, trail } = desk;
  // A worker about to send to the old address must lose its claim first.
  const takes = left !== 'record' && isOpen(record.state);
  const seen = takes ? await moves.claim(record) : (await isUnchanged(target, desk)) && record;
  if (!seen || account === undefined) return false;
  if (left === 'everything' && !(await corrections.correctEmail(account, email, takes)))
    return false;
  const applicant = { ...record.applicant, email: normalizeEmail(email) };
  await moves.correctEmail(record._id, applicant.email);
  if (left === 'record') return true;
  const corrected = { ...target, record: { ...record, ...seen, applicant } };
  const reason = `operator corrected the address, by ${trail.by}`;
  if ((await move([corrected], 'correct_address', reason, desk)) === 1) return true;
  // Another operator had it mailed again first.
  if ((await desk.submissions.byId(record._id))?.state === 'account_created') return true;
  throw new CommandError(
    `${account._id} has the address and its old link is void, but ${record._id} changed meanwhile: give the same command again, and it mails the new link`,
  );
}
