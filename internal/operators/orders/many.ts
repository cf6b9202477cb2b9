/** Orders about many targets: which there are, and what of them is listed. */
import type { RequestTarget } from '../view/order-words.ts';
import { defined } from '../../platform/process/defined.ts';
import { WALK_PAGE } from '../../platform/stores/mongo-read.ts';
import { isOpen, type State } from '../../submission/states.ts';
import type { Search } from '../../submission/support-queries.ts';
import * as moves from './moves.ts';
import type { Given, ManyOrder, OrderContext, OrderPlan, Outcome } from './order.ts';

/** A line of a list, for programs and for people. */
export interface Row {
  readonly json: object;
  readonly cells: readonly string[];
}

/** An order about many targets, and how each is listed. */
export interface Many<T> extends Omit<ManyOrder<T>, 'each' | 'paged'> {
  /** Undefined if they cannot be counted in time. */
  readonly total: number | undefined;
  row(target: T, plan: OrderPlan, outcome: Outcome): Row;
}

/** Long lists are cut to `most` rows; what was left has room of its own. */
export function listing<T>({ row: rowOf }: Pick<Many<T>, 'row'>, rows: Row[], most: number) {
  const room = { planned: most, left: most };
  return (target: T, plan: OrderPlan, outcome: Outcome): void => {
    const row = rowOf(target, plan, outcome);
    const kind = outcome === 'left' || outcome === 'unsure' ? 'left' : 'planned';
    room[kind] -= 1;
    if (room[kind] >= 0) rows.push(row);
  };
}

interface BulkOrder {
  /** Its name as a participle. */
  readonly past: string;
  readonly states: readonly State[];
  readonly plan: typeof moves.planRetry;
  /** Returns how many were unchanged and done. */
  readonly act: typeof moves.retryAll;
  /** Targets of one call of `act`. */
  readonly size: number;
}

const [dead, unanswered] = ['dead_lettered', 'undeliverable'] as const;

/** Orders about all requests that a search finds in one of their states. */
export const bulkOrders = {
  retry: {
    past: 'retried',
    states: [dead, unanswered],
    plan: moves.planRetry,
    act: moves.retryAll,
    size: WALK_PAGE,
  },
  resend: {
    past: 'resent',
    states: ['completed', unanswered],
    plan: moves.planResend,
    act: moves.resendAll,
    // Each account is updated by itself, because its e-mail's version changes.
    size: 1,
  },
  close: {
    past: 'closed',
    states: ['recorded', 'account_created', dead],
    plan: moves.planClose,
    act: moves.closeAll,
    size: WALK_PAGE,
  },
} as const satisfies Readonly<Record<string, BulkOrder>>;

export type BulkName = keyof typeof bulkOrders;

export interface Bulk extends Many<RequestTarget> {
  /** `never`: not possible, neither now nor by a repeat; `waiting`: for a partner on hold. */
  readonly counts: { waiting: number; never: number };
}

/** `limit` and `rate` bound how many are read, and how many a second. */
export function bulkOf(
  name: BulkName,
  {
    search,
    given,
    acts,
    ...bounds
  }: {
    readonly search: Search;
    readonly given: Given;
    readonly acts: boolean;
    readonly limit: number;
    readonly rate: number;
    readonly stop: AbortSignal;
    readonly total: number | undefined;
  },
  context: OrderContext,
): Bulk {
  const { past, plan, act, size }: BulkOrder = bulkOrders[name];
  const counts = { waiting: 0, never: 0 };
  return {
    action: name,
    pages: moves.matching(search, bounds, context),
    size,
    acts,
    plan: (target) => plan(target, given, context),
    act: (targets) => act(targets, given, context),
    about: (targets) =>
      targets.length === 1 ? { requestId: targets[0]!.record._id } : { count: targets.length },
    total: bounds.total,
    counts,
    row: ({ record, onHold }, { to, whyNot = '', inHand }, outcome) => {
      const { _id, state: from, partnerId } = record;
      const waits = onHold && isOpen(to as State);
      if (waits) counts.waiting += 1;
      if (outcome === 'left' && inHand !== true) counts.never += 1;
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
  };
}
