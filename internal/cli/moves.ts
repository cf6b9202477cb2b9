/** The commands about requests and their accounts: one by its id, or all of a query. */
import {
  aside as asideOrder,
  bounce as bounceOrder,
  close as closeOrder,
  closeAll,
  correctEmail as correctOrder,
  release as releaseOrder,
  reopen as reopenOrder,
  resend as resendOrder,
  retry as retryOrder,
  retryAll,
} from '../orders/moves.ts';
import type { Given } from '../orders/order.ts';
import { matching, type RequestTarget } from '../orders/requests.ts';
import { defined } from '../platform/process/defined.ts';
import { timeOfId } from '../platform/stores/ids.ts';
import { WALK_PAGE } from '../platform/stores/mongo-read.ts';
import { isOpen, type State } from '../submission/states.ts';
import { UsageError, type Call, type Command } from './command.ts';
import { RATE_DEFAULT } from './bounds.ts';
import { address, foundId, maybeRequestId, requestId, type OptionName } from './options.ts';
import { guarded, oneCommandOf, runAll, runOne, type Many, type OneCommand } from './order.ts';

const [dead, unanswered] = ['dead_lettered', 'undeliverable'] as const;

const queryOptions = [
  'state',
  'reason',
  'partner',
  'since',
  'until',
  'limit',
  'rate',
] as const satisfies OptionName[];

const ofRequest = ({ positionals: [id, right], values: { why } }: Call): Given =>
  defined({ id, address: right, why });
const many = { positionals: [maybeRequestId], options: [], given: ofRequest } as const;
const one = { positionals: [requestId], options: [], given: ofRequest } as const;

export const aside = oneCommandOf({
  ...one,
  order: asideOrder,
  positionals: [foundId],
  reasoned: true,
});

export const retry = manyCommandOf(
  { ...many, order: retryOrder, atOnce: true },
  { past: 'retried', states: [dead, unanswered], act: retryAll },
);

export const resend = manyCommandOf(
  { ...many, order: resendOrder },
  {
    past: 'resent',
    states: ['completed', unanswered],
    act: async ([target], given, office) => Number(await resendOrder.act(target!, given, office)),
    // Each account gets a new version of its e-mail.
    size: 1,
  },
);

export const close = manyCommandOf(
  { ...many, order: closeOrder, reasoned: true },
  { past: 'closed', states: ['recorded', 'account_created', dead], act: closeAll },
);

export const reopen = oneCommandOf({ ...one, order: reopenOrder });

export const bounce = oneCommandOf({
  order: bounceOrder,
  positionals: [],
  options: ['request', 'messageId', 'email', 'status'],
  atOnce: true,
  given: ({ values: { request: id, messageId, email, status } }) => {
    if ([id, messageId, email].filter((given) => given !== undefined).length !== 1)
      throw new UsageError('bounce: give one of --request, --message-id or --email');
    return defined({ id, messageId, email, status });
  },
});

export const correctEmail = oneCommandOf({
  ...one,
  order: correctOrder,
  positionals: [requestId, address],
});

export const release = oneCommandOf({ ...one, order: releaseOrder });

interface Query {
  readonly past: string;
  readonly states: readonly State[];
  /** Returns how many were unchanged and done. */
  readonly act: typeof retryAll;
  /** How many it takes at once. */
  readonly size?: number;
}

/** With a request id the order is about one, else about all of a query. */
function manyCommandOf(command: OneCommand<RequestTarget>, query: Query): Command {
  const { order, positionals, reasoned } = command;
  const { name, final } = order;
  return guarded({
    name,
    positionals,
    reasoned,
    final,
    options: [...queryOptions, 'yes'],
    run: async (call) => {
      if (call.positionals[0] === undefined)
        return runAll(await ofQuery(command, query, call), call);
      const surplus = queryOptions.find((option) => call.values[option] !== undefined);
      if (surplus === undefined) return runOne(command, call);
      throw new UsageError(`${name}: --${surplus} does not go with a REQUEST_ID`);
    },
  });
}

async function ofQuery(
  { order, given: givenBy }: OneCommand<RequestTarget>,
  { past, states, act, size = WALK_PAGE }: Query,
  call: Call,
): Promise<Many<RequestTarget>> {
  const { values, stop } = call;
  const { state, limit, yes = false, rate = RATE_DEFAULT } = values;
  if (state === undefined || !states.includes(state)) {
    const choice = states.map((each) => `--state ${each}`).join(' or ');
    throw new UsageError(`${order.name}: give a REQUEST_ID, or ${choice}`);
  }
  const total = limit ?? (await call.desk.submissions.count(values));
  const given = givenBy(call);
  // `never`: whatever is done later, the command does not change them.
  let [waiting, never] = [0, 0];
  return {
    action: order.name,
    pages: matching(values, { limit: limit ?? Infinity, rate: yes ? rate : Infinity, stop }, call),
    size,
    acts: yes,
    plan: (target) => order.plan(target, given, call),
    act: (targets) => act(targets, given, call),
    about: (targets) =>
      targets.length === 1 ? { requestId: targets[0]!.record._id } : { count: targets.length },
    total,
    row: ({ record, onHold }, { to, whyNot = '', inHand }, outcome) => {
      const { _id, state: from, partnerId } = record;
      const waits = onHold && isOpen(to as State);
      if (waits) waiting += 1;
      if (outcome === 'left' && inHand !== true) never += 1;
      const held = waits ? `, and waits: ${partnerId} is on hold` : '';
      const result = {
        possible: `would be ${past}${held}`,
        done: past + held,
        unsure: `${past}, unless it changed meanwhile`,
        left: whyNot,
      }[outcome];
      return {
        json: { request_id: _id, from, ...defined({ to }), result },
        cells: [_id, to === undefined ? from : `${from} → ${to}`, result],
      };
    },
    report: ({ looked, possible, done, reached }, rows) => {
      const left = looked - done - never;
      const isLeft = yes && left > 0;
      return {
        json: {
          dry_run: !yes,
          looked_at: looked,
          possible,
          [past]: done,
          not_possible: never,
          ...(yes ? { left } : {}),
          waiting_for_a_partner_on_hold: waiting,
          requests: rows.map(({ json }) => json),
        },
        line: yes ? `${done} ${past}` : `${possible} would be ${past}; add --yes to do it`,
        notes: [
          waiting > 0 &&
            `${waiting} of them wait until "partner release": their partners are on hold`,
          isLeft && `${left} not ${past}, being worked on or changed meanwhile: run it again`,
        ],
        isLeft,
        since: timeOfId(reached?.record._id ?? ''),
      };
    },
  };
}
