/** `retry`, `resend`, `close`, `reopen`: work on a request again, mail it once more, or end it. */
import { defined } from '../platform/defined.ts';
import { WALK_PAGE } from '../platform/mongo-read.ts';
import { isOpen } from '../submission/states.ts';
import { isBounced } from '../submission/submission.ts';
import { linkUsed, stateAfter } from '../view/plans.ts';
import type { Call, Desk } from './command.ts';
import { maybeRequestId, requestId } from './options.ts';
import { manyCommandOf } from './order-many.ts';
import { commandOf, type Order } from './order.ts';
import {
  each,
  isUnchanged,
  planned,
  requestTarget,
  requestWords,
  stored,
  whenDue,
  type RequestTarget,
} from './request-target.ts';

const select = (call: Call): Promise<RequestTarget> =>
  requestTarget(call.positionals[0] ?? '', call);

const retryOrder: Order<RequestTarget> = {
  name: 'retry',
  positionals: [maybeRequestId],
  about: 'have a dead-lettered or undeliverable request worked on again',
  details:
    'One REQUEST_ID is retried at once. A request that waits for its next attempt is due now; one that a worker has in hand is left alone. Attempts count from one again.',
  examples: [
    'retry req_01m7yefdj3fantjpk5mzvj8mwh --why "relay is back"',
    'retry --state dead_lettered --since 24h',
    'retry --state dead_lettered --since 24h --yes --as jane',
  ],
  atOnce: true,
  select,
  plan: planned('retry'),
  act: async (targets, { desk }) => {
    const waiting = targets.filter(({ record }) => isOpen(record.state));
    const hurried = await each(waiting, ({ record }) => desk.moves.hurry(record));
    const ready: RequestTarget[] = [];
    for (const target of targets)
      if (!waiting.includes(target) && (await wantsMail(target, desk))) ready.push(target);
    return hurried + (await move(ready, 'retry', `operator retry by ${desk.trail.by}`, desk));
  },
  words: (target, _call, to) => moved(target, to),
};

const resendOrder: Order<RequestTarget> = {
  name: 'resend',
  positionals: [maybeRequestId],
  about: 'mail the login instructions once more, with the same link',
  details:
    'For a completed or undeliverable request whose link has not been used. The link works for seven more days. For a wrong address: "account correct-email".',
  examples: [
    'resend --state completed --partner acme --since 24h --rate 10',
    'resend req_01m7yefdj3fantjpk5mzvj8mwh',
    'resend req_01m7yefdj3fantjpk5mzvj8mwh --yes --why "applicant lost the mail"',
  ],
  select,
  plan: planned('resend'),
  act: async ([target], { desk }) => {
    const { record } = target!;
    if (!(await wish(target!, desk, 'mailAgain'))) return 0;
    const event = record.state === 'completed' ? 'resend' : 'retry';
    return move([target!], event, `operator resend by ${desk.trail.by}`, desk);
  },
  words: (target, _call, to) => moved(target, to, 'the same link is mailed again'),
};

const closeOrder: Order<RequestTarget> = {
  name: 'close',
  positionals: [maybeRequestId],
  about: 'end an open request or a dead letter for good, with a reason',
  details:
    'Nothing of it is mailed any more, links that were sent are void, and only "reopen" undoes it; its account stays. The partner sees it rejected as "discarded". The reason of --why stands in its history, so name no person in it. A request that a worker has in hand is left alone.',
  examples: [
    'close req_01m7yefdj3fantjpk5mzvj8mwh --yes --as jane --why "sent by mistake, ticket 4711"',
    'close --state dead_lettered --reason 451 --until 30d --why "ticket 4711"',
    'close --state dead_lettered --partner acme --yes --as jane --why "ticket 4711"',
  ],
  final: true,
  reasoned: true,
  select,
  plan: planned('close'),
  act: async (targets, { desk, values }) => {
    const reason = `operator closed it: ${values.why ?? ''}, by ${desk.trail.by}`;
    await move(targets, 'close', reason, desk);
    const now = await desk.submissions.checked(targets.map(({ record }) => record._id));
    const closed = new Set(now.flatMap(({ _id, state }) => (state === 'closed' ? [_id] : [])));
    const accounts = targets.flatMap(({ record, account }) =>
      account !== undefined && closed.has(record._id) ? [account._id] : [],
    );
    await desk.corrections.close(accounts);
    return closed.size;
  },
  words: (target, _call, to) => {
    const { _id, state: from } = target.record;
    const done = `${_id}  ${from} → ${to}`;
    const json = { dry_run: false, from, to };
    return { ...requestWords(target, { done, json }), would: done };
  },
};

const reopenOrder: Order<RequestTarget> = {
  name: 'reopen',
  positionals: [requestId],
  about: 'work again on a request that was closed',
  details:
    'One request at a time, and the only way back. Where it has an account, a new link is mailed; those that were sent before stay void.',
  examples: ['reopen req_01m7yefdj3fantjpk5mzvj8mwh --yes --as jane --why "closed by mistake"'],
  select,
  plan: planned('reopen'),
  act: async ([target], { desk }) => {
    const { account } = target!;
    if (account !== undefined && !(await wish(target!, desk, 'reopen'))) return 0;
    return move([target!], 'reopen', `operator reopened it, by ${desk.trail.by}`, desk);
  },
  words: (target, _call, to) => moved(target, to, 'it is worked on again'),
};

const [dead, unanswered] = ['dead_lettered', 'undeliverable'] as const;
export const retry = manyCommandOf(retryOrder, {
  past: 'retried',
  states: [dead, unanswered],
  size: WALK_PAGE,
});
// Each account gets a new version of its e-mail.
export const resend = manyCommandOf(resendOrder, {
  past: 'resent',
  states: ['completed', unanswered],
  size: 1,
});
export const close = manyCommandOf(closeOrder, {
  past: 'closed',
  states: ['recorded', 'account_created', dead],
  size: WALK_PAGE,
});

export const reopen = commandOf(reopenOrder);

function moved(target: RequestTarget, to: string | undefined, would?: string) {
  const { _id, state: from } = target.record;
  const next = whenDue(target);
  const mailed = would === undefined ? '' : `${would}; `;
  const done = `${_id}  ${from} → ${to}; ${mailed}${next.text}`;
  return requestWords(target, { ...defined({ would }), done, json: { from, to, ...next.json } });
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

/** A record that is past its retention is made again. Returns how many were unchanged. */
async function move(
  targets: readonly RequestTarget[],
  event: 'retry' | 'resend' | 'close' | 'reopen',
  reason: string,
  { moves }: Desk,
): Promise<number> {
  const past = targets.filter(({ record }) => record.pastRetention === true);
  const remade = await each(past, ({ record }) => moves.remake(stored(record), reason));
  const ready = targets.flatMap(({ record, account }) => {
    const to = stateAfter(record, account, event);
    const isPast = record.pastRetention === true;
    return to === undefined || isPast ? [] : [{ seen: record, to, accountId: account?._id }];
  });
  return remade + (ready.length === 0 ? 0 : await moves.moveAll(event, ready, reason));
}
