/** Generates the plan of a history, which fast-check reduces to the smallest that fails. */
import * as fc from 'fast-check';
import type { OperatorEvent } from '../../internal/submission/states.ts';
import type { Temper } from './relay.ts';

const faultKinds = [
  'kill_processor',
  'freeze_processor',
  'kill_ingest',
  'freeze_ingest',
  'mongo_away',
  'mongo_shaky',
  'mongo_stalled',
  'redis_away',
  'redis_lossy',
  'redis_emptied',
  'relay_away',
  'relay_shaky',
  'relay_hangs',
  'relay_refuses',
  'relay_turns_away',
  'partner_on_hold',
  'restart_processor',
  'clock_leaps',
] as const;
export type FaultKind = (typeof faultKinds)[number];

export type OrderEvent =
  Exclude<OperatorEvent, 'report_bounce' | 'report_refusal'> | 'release' | 'bounce' | BulkOrder;

export const bulkOrders = {
  'retry --state dead_lettered': ['retry', 'dead_lettered'],
  'retry --state undeliverable': ['retry', 'undeliverable'],
  'resend --state completed': ['resend', 'completed'],
  'resend --state undeliverable': ['resend', 'undeliverable'],
  'close --state recorded': ['close', 'recorded'],
  'close --state account_created': ['close', 'account_created'],
  'close --state dead_lettered': ['close', 'dead_lettered'],
} as const;
export type BulkOrder = keyof typeof bulkOrders;

export const CLOCK_LEAPS_MS = [60_000, 3_600_000, 30 * 86_400_000].flatMap((ms) => [ms, -ms]);

export type Plan = typeof plans extends fc.Arbitrary<infer One> ? One : never;
export type Fault = Plan['faults'][number];

export function leapt(plan: Plan): Plan {
  const { leap } = plan;
  if (leap === undefined) return plan;
  const later = <T extends { readonly atMs: number }>(one: T): T =>
    one.atMs > leap.atMs ? { ...one, atMs: one.atMs + leap.byMs } : one;
  const faults = plan.faults.map((fault) => (fault.near === null ? later(fault) : fault));
  return {
    ...plan,
    submissions: plan.submissions.map(later),
    orders: plan.orders.map(later),
    faults,
  };
}

/** The time at which a fault begins, near its submission if it has one. */
export function startOf(fault: Fault, { submissions }: Plan): number {
  const { near, atMs } = fault;
  return near === null ? atMs : submissions[near % submissions.length]!.atMs + (atMs % NEAR_MS);
}

/** The duration of a submission without a fault. */
const NEAR_MS = 300;
const PEOPLE = 3;
export const PROCESSORS = 2;
const MINUTE_MS = 60_000;
/** All plans start within this time. */
const PLANNED_MS = 4 * MINUTE_MS;

const skew = fc.integer({ min: -60_000, max: 60_000 });

const time = fc.oneof(fc.nat(2_000), fc.nat(PLANNED_MS));
const person = fc.nat(PEOPLE - 1);

export const ordersOfOne = [
  'retry',
  'resend',
  'correct_address',
  'release',
  'erase',
  'close',
  'reopen',
  'bounce',
] as const satisfies OrderEvent[];
export const orderEvents: readonly OrderEvent[] = [
  ...ordersOfOne,
  ...(Object.keys(bulkOrders) as BulkOrder[]),
];
const HOUR_MS = 60 * MINUTE_MS;
/** Just after the ends of deferrals, attempts, idempotency keys and bodies. */
const LEAPS_MS = [
  11 * MINUTE_MS,
  HOUR_MS + MINUTE_MS,
  24 * HOUR_MS + MINUTE_MS,
  3 * 24 * HOUR_MS + MINUTE_MS,
  30 * 24 * HOUR_MS + MINUTE_MS,
];

export const plans = fc.record({
  /** Seeds latencies, the choice of workers and the faults of calls. */
  seed: fc.nat(),
  submissions: fc.array(
    fc.record({
      atMs: time,
      /** One of few, as the EIN is, so that they collide. */
      email: person,
      ein: person,
      valid: fc.oneof(
        { arbitrary: fc.constant(true), weight: 9 },
        { arbitrary: fc.constant(false), weight: 1 },
      ),
      /** One of few idempotency keys, so that they collide; null sends none. */
      key: fc.option(fc.nat(1)),
    }),
    { minLength: 1, maxLength: 5 },
  ),
  tempers: fc.array(
    fc.oneof(
      { arbitrary: fc.constant<Temper>('takes'), weight: 48 },
      {
        arbitrary: fc.constantFrom<Temper>('no_such_mailbox', 'busy', 'slow', 'blocks_us'),
        weight: 32,
      },
      { arbitrary: fc.constant<Temper>('always_busy'), weight: 1 },
    ),
    { minLength: PEOPLE, maxLength: PEOPLE },
  ),
  faults: fc.array(
    fc.record({
      kind: fc.constantFrom(...faultKinds),
      atMs: time,
      /** The submission that `atMs` counts from; null is the start. */
      near: fc.option(fc.nat(4)),
      forMs: fc.oneof(fc.nat(3_000), fc.nat(90_000)),
      target: fc.nat(PROCESSORS - 1),
    }),
    { maxLength: 6 },
  ),
  orders: fc.array(
    fc.record({
      atMs: fc.oneof(fc.nat(2_500), fc.nat(2 * PLANNED_MS)),
      submission: fc.nat(4),
      event: fc.constantFrom(...orderEvents),
    }),
    { maxLength: 6 },
  ),
  /** Moves everything after `atMs` to a later time. */
  leap: fc.option(fc.record({ atMs: fc.nat(2 * PLANNED_MS), byMs: fc.constantFrom(...LEAPS_MS) }), {
    freq: 2,
    nil: undefined,
  }),
  skewsMs: fc.array(skew, { minLength: PROCESSORS + 2, maxLength: PROCESSORS + 2 }),
});
