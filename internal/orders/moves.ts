/** The orders about one request or its account; those that can be about many, too. */
import { maskEmail, normalizeEmail } from '../application/fields.ts';
import { mailReason } from '../application/reasons.ts';
import { accountOfMessageId } from '../mail/message.ts';
import { reasonOf } from '../mail/relay-answers.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { findingName, type Suspect } from '../self-audit/rules.ts';
import { suspectsAt } from '../self-audit/walk.ts';
import { isOpen } from '../submission/states.ts';
import { isBounced } from '../submission/submission.ts';
import { linkUsed, type Plan } from '../view/plans.ts';
import { utc } from '../view/times.ts';
import {
  OrderRefused,
  type Given,
  type Office,
  type OneOrder,
  type OrderDesk,
  type Words,
} from './order.ts';
import {
  isUnchanged,
  move,
  planned,
  requestSeen,
  requestTarget,
  requestWords,
  those,
  whenDue,
  type RequestTarget,
} from './requests.ts';

/** An order of many is given again within this time. */
const RESENT_MS = DAY_MS;

/** What all of them have in common. */
const ofRequest = { select: requestTarget, seen: requestSeen } as const;

export const retry: OneOrder<RequestTarget> = {
  ...ofRequest,
  name: 'retry',
  plan: planned('retry'),
  act: async (target, given, office) => (await retryAll([target], given, office)) === 1,
  words: (target, _given, { to }) => moved(target, to, whenDue(target)),
};

export const resend: OneOrder<RequestTarget> = {
  ...ofRequest,
  name: 'resend',
  plan: (target, given, office) =>
    resentBefore(target, given, office) ?? planned('resend')(target, given, office),
  act: async (target, given, { desk }) => {
    if (!(await wish(target, desk, 'mailAgain'))) return false;
    const event = target.record.state === 'completed' ? 'resend' : 'retry';
    return (await move([target], event, `${resendOf(given)} by ${desk.trail.by}`, desk)) === 1;
  },
  words: (target, _given, { to }) =>
    moved(target, to, whenDue(target), 'the same link is mailed again'),
};

/** How the history names an order; one of many that was cut off is given again with its reason. */
function resendOf({ id, why }: Given): string {
  if (id !== undefined) return 'operator resend';
  return `operator resend of many${why === undefined ? '' : ` (${why})`}`;
}

/** An order of many mails nobody twice, even if it is given again. */
function resentBefore(
  { record }: RequestTarget,
  given: Given,
  { clock }: Office,
): Plan | undefined {
  if (given.id !== undefined) return undefined;
  const since = later(clock.now(), -RESENT_MS);
  const done = record.history.findLast(
    ({ at, reason }) => at > since && reason?.startsWith(`${resendOf(given)} by `),
  );
  return (
    done && {
      whyNot: `was resent ${utc(done.at)} UTC by this order: another --why makes another order`,
    }
  );
}

export const close: OneOrder<RequestTarget> = {
  ...ofRequest,
  name: 'close',
  final: true,
  plan: planned('close'),
  act: async (target, given, office) => (await closeAll([target], given, office)) === 1,
  words: (target, _given, { to }) => {
    const words = moved(target, to, { json: { dry_run: false } });
    return { ...words, would: words.done };
  },
};

export const reopen: OneOrder<RequestTarget> = {
  ...ofRequest,
  name: 'reopen',
  plan: planned('reopen'),
  act: async (target, _given, { desk }) => {
    if (target.account !== undefined && !(await wish(target, desk, 'reopen'))) return false;
    return (
      (await move([target], 'reopen', `operator reopened it, by ${desk.trail.by}`, desk)) === 1
    );
  },
  words: (target, _given, { to }) => moved(target, to, whenDue(target), 'it is worked on again'),
};

interface Bounced extends RequestTarget {
  /** Only a Message-ID says of which e-mail it is. */
  readonly isEarlier: boolean;
}

export const bounce: OneOrder<Bounced> = {
  name: 'bounce',
  seen: requestSeen,
  select: async (given, office) => {
    const { messageId, email } = given;
    const mail = messageId === undefined ? undefined : accountOfMessageId(messageId);
    if (messageId !== undefined && mail === undefined)
      throw new OrderRefused('the Message-ID is none of ours: nothing was changed');
    const recipient =
      email === undefined
        ? undefined
        : await office.desk.accounts.find('emailNormalized', normalizeEmail(email));
    if (email !== undefined && recipient === undefined)
      throw new OrderRefused('no account has this address: nothing was changed');
    const id = given.id ?? mail?.accountId ?? recipient?.requestId ?? '';
    const target = await requestTarget({ id }, office);
    const isEarlier = mail !== undefined && target.account?.mailVersion !== mail.mailVersion;
    return { ...target, isEarlier };
  },
  plan: (target, given, office) => {
    const { record, account, isEarlier } = target;
    if (isEarlier)
      return {
        nothing: 'it is about an earlier e-mail, which was reported before or followed by another',
      };
    return account !== undefined && record.state === 'undeliverable'
      ? { nothing: 'it is undeliverable already' }
      : planned('bounce')(target, given, office);
  },
  act: ({ record }, { status }, { desk }) => {
    const code = status === undefined ? '' : ` (${status})`;
    const reason = `the e-mail bounced after the mail server had taken it${code}, reported by ${desk.trail.by}`;
    // The account notes the e-mail until a retry, so this is one write.
    const reasons = [mailReason(reasonOf(status))];
    const seen = { seen: record, accountId: record.accountId, reasons };
    return desk.moves.move('report_bounce', seen, reason);
  },
  words: (target, _given, { to }) => ({
    ...moved(target, to, { text: '"show" says what to do next' }),
    unchanged: { whyNot: 'changed meanwhile: report it again later', later: true },
  }),
};

function moved(
  target: RequestTarget,
  to: string | undefined,
  next: { readonly text?: string; readonly json?: object },
  would?: string,
): Words {
  const { _id, state: from } = target.record;
  const done = [`${_id}  ${from} → ${to}`, would, next.text].filter((one) => one !== undefined);
  const json = { from, to, ...next.json };
  return requestWords(target, { ...defined({ would }), done: done.join('; '), json });
}

export async function retryAll(
  targets: readonly RequestTarget[],
  _given: Given,
  { desk }: Office,
): Promise<number> {
  const open = targets.filter(({ record }) => isOpen(record.state));
  const others = targets.filter(({ record }) => !isOpen(record.state));
  const hurried = await those(open, ({ record }) => desk.moves.hurry(record));
  const ready = await those(others, (target) => wantsMail(target, desk));
  const reason = `operator retry by ${desk.trail.by}`;
  return hurried.length + (await move(ready, 'retry', reason, desk));
}

/** Before a retry: an account whose e-mail came back wants another one. False if it has changed. */
async function wantsMail(target: RequestTarget, desk: OrderDesk): Promise<boolean> {
  const { record, account } = target;
  if (account?.notifiedAt === undefined || linkUsed(account) || !isBounced(record)) return true;
  return wish(target, desk, 'mailAgain');
}

/**
 * The account wants an e-mail; false if it or its request has changed. It is written before the
 * record, so that a repeat works after an interruption.
 */
async function wish(
  target: RequestTarget,
  desk: OrderDesk,
  how: 'mailAgain' | 'reopen',
): Promise<boolean> {
  return (await isUnchanged(target, desk)) && desk.corrections[how](target.account!);
}

export async function closeAll(
  targets: readonly RequestTarget[],
  { why = '' }: Given,
  { desk }: Office,
): Promise<number> {
  await move(targets, 'close', `operator closed it: ${why}, by ${desk.trail.by}`, desk);
  const now = await desk.submissions.checked(targets.map(({ record }) => record._id));
  const closed = new Set(now.flatMap(({ _id, state }) => (state === 'closed' ? [_id] : [])));
  const accounts = targets.flatMap(({ record, account }) =>
    account !== undefined && closed.has(record._id) ? [account._id] : [],
  );
  await desk.corrections.close(accounts);
  return closed.size;
}

/** What a correction that was cut off has left to do. */
type CorrectionLeft = 'everything' | 'record_and_mail' | 'record' | 'nothing';

interface Correction extends RequestTarget {
  readonly email: string;
  readonly left: CorrectionLeft;
}

export const correctEmail: OneOrder<Correction> = {
  name: 'account correct-email',
  seen: requestSeen,
  select: async (given, office) => {
    const { address: email = '' } = given;
    const target = await requestTarget(given, office);
    if (planned('correctEmail')(target, given, office).to !== undefined) {
      const other = await office.desk.accounts.find('emailNormalized', normalizeEmail(email));
      if (other !== undefined && other._id !== target.account?._id)
        throw new OrderRefused(
          `the address belongs to another account (${other.requestId}); nothing was changed`,
        );
    }
    return { ...target, email, left: leftToDo(target, email) };
  },
  plan: (target, given, office) => {
    const plan = planned('correctEmail')(target, given, office);
    return plan.to !== undefined && target.left === 'nothing'
      ? { whyNot: `has account ${target.account?._id}, which has this address already` }
      : plan;
  },
  act: (target, _given, { desk }) => correct(target, desk),
  words: (target, _given, { reveal }) => {
    const { account, email, left } = target;
    // Only the operator can see a typing error.
    const shown = email === '' ? 'the address given' : reveal ? email : maskEmail(email);
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
};

/** A repeat completes a correction that was cut off after the account was written. */
function leftToDo({ record, account }: RequestTarget, email: string): CorrectionLeft {
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
async function correct(target: Correction, desk: OrderDesk): Promise<boolean> {
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
  throw new OrderRefused(
    `${account._id} has the address and its old link is void, but ${record._id} changed meanwhile: give the same command again, and it mails the new link`,
  );
}

export const release: OneOrder<RequestTarget> = {
  ...ofRequest,
  name: 'account release',
  final: true,
  plan: planned('release'),
  act: async (target, _given, { desk }) =>
    (await isUnchanged(target, desk)) && desk.corrections.release(target.account!),
  words: (target) => {
    const id = target.account?._id;
    return requestWords(target, {
      would: 'its e-mail address and EIN are given free, its link ends',
      done: `${id}  released: the e-mail address and the EIN may be applied with again`,
      json: { account_id: id, result: 'released' },
    });
  },
};

interface Findings {
  readonly id: string;
  /** Absent where the account is gone. */
  readonly requestId: string | undefined;
  readonly found: readonly Suspect[];
  /** Who put all of them aside before. */
  readonly before: string | undefined;
}

/** The entry in the trail is what puts a finding aside. */
export const aside: OneOrder<Findings> = {
  name: 'aside',
  select: async ({ id = '' }, office) => {
    const found = await findingsAt(id, office);
    if (found.length === 0) throw new OrderRefused(`the audit finds nothing at ${id}`);
    const put = await office.desk.trail.putAside(found.map(findingName));
    const [entry] = put.values();
    const all = found.every((one) => put.has(findingName(one)));
    const [account] = await office.desk.accounts.checked('_id', [id]);
    const requestId = id.startsWith('req_') ? id : account?.requestId;
    return { id, requestId, found, before: all ? entry?.by : undefined };
  },
  seen: ({ found }) => found,
  plan: ({ before }) =>
    before === undefined ? { to: 'aside' } : { nothing: `${before} has put it aside already` },
  act: async ({ id, found }, _given, office) =>
    String(await findingsAt(id, office)) === String(found),
  words: ({ id, requestId, found }) => {
    const kinds = found.map(([kind]) => kind);
    const json = { id, kinds };
    return {
      subject: id,
      about: {
        ...defined({ requestId, accountId: id === requestId ? undefined : id }),
        aside: found.map(findingName),
      },
      would: `${id}  ${kinds.join(', ')}: would be put aside`,
      done: `${id}  ${kinds.join(', ')}: put aside; what changes is found again`,
      json: { dry: json, done: { ...json, result: 'aside' } },
    };
  },
};

/** Without the setting of a retention, it may put more aside than the audit lists. */
const findingsAt = (id: string, { desk, clock }: Office): Promise<Suspect[]> =>
  suspectsAt([id], { ...desk, accountRequestsKeptMs: Infinity }, clock);
