/** `retry`, `resend`, `close`, `reopen` and `bounce`: the moves of requests. */
import { normalizeEmail } from '../application/fields.ts';
import { mailReason } from '../application/reasons.ts';
import { accountOfMessageId } from '../mail/message.ts';
import { reasonOf } from '../mail/relay-answers.ts';
import { DAY_MS, later } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { isOpen } from '../submission/states.ts';
import { isBounced } from '../submission/submission.ts';
import { linkUsed, type Plan } from '../view/plans.ts';
import { utc } from '../view/times.ts';
import { CommandError, UsageError, type Call, type Desk } from './command.ts';
import { maybeRequestId, requestId } from './options.ts';
import { oneCommandOf, type Words } from './order.ts';
import {
  isUnchanged,
  manyCommandOf,
  move,
  planned,
  requestTarget,
  requestWords,
  those,
  whenDue,
  type RequestTarget,
} from './requests.ts';

/** An order of many is given again within this time. */
const RESENT_MS = DAY_MS;
const [dead, unanswered] = ['dead_lettered', 'undeliverable'] as const;

export const retry = manyCommandOf(
  {
    name: 'retry',
    positionals: [maybeRequestId],
    atOnce: true,
    select: requestTarget,
    plan: planned('retry'),
    act: async (target, call) => (await retryAll([target], call)) === 1,
    words: (target, _call, to) => moved(target, to, whenDue(target)),
  },
  { past: 'retried', states: [dead, unanswered], actOnAll: retryAll },
);

export const resend = manyCommandOf(
  {
    name: 'resend',
    positionals: [maybeRequestId],
    select: requestTarget,
    plan: (target, call) => resentBefore(target, call) ?? planned('resend')(target, call),
    act: async (target, call) => {
      const { desk } = call;
      if (!(await wish(target, desk, 'mailAgain'))) return false;
      const event = target.record.state === 'completed' ? 'resend' : 'retry';
      return (await move([target], event, `${resendOf(call)} by ${desk.trail.by}`, desk)) === 1;
    },
    words: (target, _call, to) =>
      moved(target, to, whenDue(target), 'the same link is mailed again'),
  },
  // One at a time: each account gets a new version of its e-mail.
  { past: 'resent', states: ['completed', unanswered] },
);

/** How the history names an order; one of many that was cut off is given again with its `--why`. */
function resendOf({ positionals, values: { why } }: Call): string {
  if (positionals[0] !== undefined) return 'operator resend';
  return `operator resend of many${why === undefined ? '' : ` (${why})`}`;
}

/** An order of many mails nobody twice, even if it is given again. */
function resentBefore({ record }: RequestTarget, call: Call): Plan | undefined {
  if (call.positionals[0] !== undefined) return undefined;
  const since = later(call.clock.now(), -RESENT_MS);
  const done = record.history.findLast(
    ({ at, reason }) => at > since && reason?.startsWith(`${resendOf(call)} by `),
  );
  return (
    done && {
      whyNot: `was resent ${utc(done.at)} UTC by this order: another --why makes another order`,
    }
  );
}

export const close = manyCommandOf(
  {
    name: 'close',
    positionals: [maybeRequestId],
    final: true,
    reasoned: true,
    select: requestTarget,
    plan: planned('close'),
    act: async (target, call) => (await closeAll([target], call)) === 1,
    words: (target, _call, to) => {
      const words = moved(target, to, { json: { dry_run: false } });
      return { ...words, would: words.done };
    },
  },
  { past: 'closed', states: ['recorded', 'account_created', dead], actOnAll: closeAll },
);

export const reopen = oneCommandOf<RequestTarget>({
  name: 'reopen',
  positionals: [requestId],
  select: requestTarget,
  plan: planned('reopen'),
  act: async (target, { desk }) => {
    if (target.account !== undefined && !(await wish(target, desk, 'reopen'))) return false;
    return (
      (await move([target], 'reopen', `operator reopened it, by ${desk.trail.by}`, desk)) === 1
    );
  },
  words: (target, _call, to) => moved(target, to, whenDue(target), 'it is worked on again'),
});

interface Bounced extends RequestTarget {
  /** Only a Message-ID says of which e-mail it is. */
  readonly isEarlier: boolean;
}

export const bounce = oneCommandOf<Bounced>({
  name: 'bounce',
  positionals: [],
  options: ['request', 'messageId', 'email', 'status'],
  atOnce: true,
  select: bounced,
  plan: (target, call) => {
    const { record, account, isEarlier } = target;
    if (isEarlier)
      return {
        nothing: 'it is about an earlier e-mail, which was reported before or followed by another',
      };
    return account !== undefined && record.state === 'undeliverable'
      ? { nothing: 'it is undeliverable already' }
      : planned('bounce')(target, call);
  },
  act: ({ record }, { desk, values }) => {
    const code = values.status === undefined ? '' : ` (${values.status})`;
    const reason = `the e-mail bounced after the mail server had taken it${code}, reported by ${desk.trail.by}`;
    // The account notes the e-mail until a retry, so this is one write.
    const reasons = [mailReason(reasonOf(values.status))];
    const seen = { seen: record, accountId: record.accountId, reasons };
    return desk.moves.move('report_bounce', seen, reason);
  },
  words: (target, _call, to) => ({
    ...moved(target, to, { text: '"show" says what to do next' }),
    unchanged: { whyNot: 'changed meanwhile: report it again later', later: true },
  }),
});

async function bounced(call: Call): Promise<Bounced> {
  const { request, messageId, email } = call.values;
  if ([request, messageId, email].filter((given) => given !== undefined).length !== 1)
    throw new UsageError('bounce: give one of --request, --message-id or --email');
  const mail = messageId === undefined ? undefined : accountOfMessageId(messageId);
  if (messageId !== undefined && mail === undefined)
    throw new CommandError('the Message-ID is none of ours: nothing was changed');
  const recipient =
    email === undefined
      ? undefined
      : await call.desk.accounts.find('emailNormalized', normalizeEmail(email));
  if (email !== undefined && recipient === undefined)
    throw new CommandError('no account has this address: nothing was changed');
  const target = await requestTarget(call, request ?? mail?.accountId ?? recipient?.requestId);
  const isEarlier = mail !== undefined && target.account?.mailVersion !== mail.mailVersion;
  return { ...target, isEarlier };
}

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

async function retryAll(targets: readonly RequestTarget[], { desk }: Call): Promise<number> {
  const open = targets.filter(({ record }) => isOpen(record.state));
  const others = targets.filter(({ record }) => !isOpen(record.state));
  const hurried = await those(open, ({ record }) => desk.moves.hurry(record));
  const ready = await those(others, (target) => wantsMail(target, desk));
  const reason = `operator retry by ${desk.trail.by}`;
  return hurried.length + (await move(ready, 'retry', reason, desk));
}

/** Before a retry: an account whose e-mail came back wants another one. False if it has changed. */
async function wantsMail(target: RequestTarget, desk: Desk): Promise<boolean> {
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
  desk: Desk,
  how: 'mailAgain' | 'reopen',
): Promise<boolean> {
  return (await isUnchanged(target, desk)) && desk.corrections[how](target.account!);
}

async function closeAll(
  targets: readonly RequestTarget[],
  { desk, values }: Call,
): Promise<number> {
  const reason = `operator closed it: ${values.why ?? ''}, by ${desk.trail.by}`;
  await move(targets, 'close', reason, desk);
  const now = await desk.submissions.checked(targets.map(({ record }) => record._id));
  const closed = new Set(now.flatMap(({ _id, state }) => (state === 'closed' ? [_id] : [])));
  const accounts = targets.flatMap(({ record, account }) =>
    account !== undefined && closed.has(record._id) ? [account._id] : [],
  );
  await desk.corrections.close(accounts);
  return closed.size;
}
