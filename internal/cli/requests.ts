/** Orders about requests: one by its id, or all of a query. */
import type { Account } from '../account/account.ts';
import { defined } from '../platform/defined.ts';
import { pause } from '../platform/deadline.ts';
import { WALK_PAGE } from '../platform/mongo-read.ts';
import { timeOfId } from '../platform/ids.ts';
import { isOpen, type State } from '../submission/states.ts';
import type { FoundSubmission } from '../view/look-up.ts';
import { planOf, stateAfter, type Order as RequestOrder, type Plan } from '../view/plans.ts';
import { submissionById, UsageError, type Call, type Command, type Desk } from './command.ts';
import { RATE_DEFAULT } from './limits.ts';
import { type OptionName } from './options.ts';
import { commandOf, orderOf, type OneCommand, type Order, type Words } from './order.ts';

/** A request with its account. */
export interface RequestTarget {
  readonly record: FoundSubmission;
  readonly account: Account | undefined;
  /** So is its partner. */
  readonly onHold: boolean;
}

export async function requestTarget(
  call: Call,
  id = call.positionals[0] ?? '',
): Promise<RequestTarget> {
  const { desk } = call;
  const record = await submissionById(id, call);
  const [account, onHold] = await Promise.all([
    desk.accounts.find('requestId', record._id),
    record.partnerId !== undefined && desk.holds.isSet(record.partnerId),
  ]);
  return { record, account, onHold };
}

export const planned =
  (order: RequestOrder) =>
  ({ record, account }: RequestTarget, { clock }: Call): Plan =>
    planOf(order, record, account, clock.now());

/** Of one request; `would` is about its account. */
export function requestWords(
  { record, account }: RequestTarget,
  { would, done, json }: { readonly would?: string; readonly done: string; readonly json: object },
): Words {
  const { _id: id, state } = record;
  const accountId = account?._id;
  return {
    subject: id,
    about: { requestId: id, ...defined({ accountId }) },
    would: `${accountId} of ${id} (${state}): ${would}`,
    done,
    json: {
      dry: { request_id: id, ...defined({ account_id: accountId, would }) },
      done: { request_id: id, ...json },
    },
  };
}

/** What the request still waits for once it is due; `json` is for programs. */
export function whenDue({ record: { partnerId }, onHold }: RequestTarget): {
  readonly text: string;
  readonly json: { readonly waits_for?: string };
} {
  if (!onHold) return { text: 'it is due now, and a processor takes it by itself', json: {} };
  return {
    text: `it waits: ${partnerId} is on hold until "partner release ${partnerId}"`,
    json: { waits_for: `partner ${partnerId} is on hold` },
  };
}

/**
 * Before the account is changed: it may have been read after the e-mail of another order, and the
 * record before that order. Then nothing would send what the account wants.
 */
export async function isUnchanged(
  { record: { _id, state, version, pastRetention } }: RequestTarget,
  { submissions }: Pick<Desk, 'submissions'>,
): Promise<boolean> {
  const now = await submissions.byId(_id);
  return now === undefined
    ? pastRetention === true
    : now.state === state && now.version === version;
}

/** A record that is past its retention is made again. Returns how many were unchanged. */
export async function move(
  targets: readonly RequestTarget[],
  event: 'retry' | 'resend' | 'correct_address' | 'close' | 'reopen',
  reason: string,
  { moves }: Desk,
): Promise<number> {
  const past = targets.filter(({ record }) => record.pastRetention === true);
  const remade = await those(past, ({ record: { pastRetention: _past, ...record } }) =>
    moves.remake(record, reason),
  );
  const ready = targets.flatMap((target) => {
    const { record, account } = target;
    const to = past.includes(target) ? undefined : stateAfter(record, account, event);
    return to === undefined ? [] : [{ seen: record, to, accountId: account?._id }];
  });
  return remade.length + (await moves.moveAll(event, ready, reason));
}

/** Those of which `act` says that it did something. */
export async function those<T>(
  targets: readonly T[],
  act: (target: T) => Promise<boolean>,
): Promise<T[]> {
  const done: T[] = [];
  for (const target of targets) if (await act(target)) done.push(target);
  return done;
}

interface Query {
  readonly past: string;
  readonly states: readonly State[];
  /** Returns how many were unchanged and done. By default each has a write of its own. */
  readonly actOnAll?: (targets: readonly RequestTarget[], call: Call) => Promise<number>;
}

const queryOptions = [
  'state',
  'reason',
  'partner',
  'since',
  'until',
  'limit',
  'rate',
] as const satisfies OptionName[];

/** With a request id the order is about one, else about all of a query. */
export function manyCommandOf(command: OneCommand<RequestTarget>, query: Query): Command {
  const { name } = command;
  return commandOf({
    ...command,
    options: [...queryOptions, 'yes'],
    order: (call) => {
      if (call.positionals[0] === undefined) return ofQuery(command, query, call);
      const surplus = queryOptions.find((option) => call.values[option] !== undefined);
      if (surplus === undefined) return orderOf(command, call);
      throw new UsageError(`${name}: --${surplus} does not go with a REQUEST_ID`);
    },
  });
}

async function ofQuery(
  order: OneCommand<RequestTarget>,
  { past, states, actOnAll }: Query,
  call: Call,
): Promise<Order<RequestTarget>> {
  const { values } = call;
  const { state, limit, yes = false } = values;
  if (state === undefined || !states.includes(state)) {
    const choice = states.map((one) => `--state ${one}`).join(' or ');
    throw new UsageError(`${order.name}: give a REQUEST_ID, or ${choice}`);
  }
  const total = limit ?? (await call.desk.submissions.count(values));
  // `never`: whatever is done later, the command does not change them.
  let [waiting, never] = [0, 0];
  return {
    pages: matching(call),
    size: actOnAll === undefined ? 1 : WALK_PAGE,
    acts: yes,
    plan: (target) => order.plan(target, call),
    act: async (targets) =>
      actOnAll === undefined ? Number(await order.act(targets[0]!, call)) : actOnAll(targets, call),
    about: (targets) =>
      targets.length === 1 ? { requestId: targets[0]!.record._id } : { count: targets.length },
    many: {
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
    },
    report: ({ rows, looked, possible, done, reached }) => {
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

/** At most `--rate` a second, each part read when it is its turn. */
async function* matching({ desk, values, clock, stop }: Call): AsyncGenerator<RequestTarget[]> {
  const { yes, rate: most = RATE_DEFAULT, limit = Infinity } = values;
  const rate = yes ? most : Infinity;
  const held = new Set((await desk.holds.list()).map(({ _id }) => _id));
  const startedMs = clock.monotonicMs();
  let given = 0;
  for await (const page of desk.submissions.pages(values, { bodies: false })) {
    const size = Math.min(page.length, rate);
    for (let from = 0; from < page.length; from += size) {
      const part = page.slice(from, from + size).slice(0, limit - given);
      if (part.length === 0) return;
      const found = await desk.accounts.ofPerson({}, new Set(part.map(({ _id }) => _id)));
      const accounts = new Map(found.map((account) => [account.requestId, account]));
      yield part.map((record) => ({
        record,
        account: accounts.get(record._id),
        onHold: held.has(record.partnerId ?? ''),
      }));
      given += part.length;
      const aheadMs = (given * 1_000) / rate - (clock.monotonicMs() - startedMs);
      if (aheadMs > 0) await pause(aheadMs, stop);
    }
  }
}
