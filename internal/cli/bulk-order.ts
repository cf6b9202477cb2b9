/** Applies a command to all requests of a query, page by page at a rate. */
import type { Account } from '../account/account.ts';
import { defined } from '../platform/defined.ts';
import { pause } from '../platform/deadline.ts';
import { timeOfId } from '../platform/ids.ts';
import { printable, table } from '../platform/terminal.ts';
import { isOpen, type State } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { EXIT, type Call, type ExitCode } from './command.ts';
import { CHANGES_LISTED, RATE_DEFAULT } from './limits.ts';
import { UsageError, type OptionName } from './options.ts';
import { Progress } from './progress.ts';
import { claimInWords } from '../view/plans.ts';
import { utc } from '../view/times.ts';

export type Plan =
  | { readonly to: State; readonly whyNot?: never }
  | { readonly to?: never; readonly whyNot: string };

export interface Planned {
  readonly record: SubmissionRecord;
  readonly account: Account | undefined;
  readonly to: State;
}

export interface Order {
  readonly action: 'retry' | 'resend' | 'close';
  readonly past: string;
  readonly states: readonly State[];
  plan(record: SubmissionRecord, account: Account | undefined): Plan;
  /** The number of requests that one call of `act` takes. */
  readonly atOnce: number;
  /** Returns how many were unchanged and done. */
  act(planned: readonly Planned[], call: Call): Promise<number>;
}

export const queryOptions = [
  'state',
  'reason',
  'partner',
  'since',
  'until',
  'limit',
  'rate',
] as const satisfies OptionName[];

/** Rejects options of a query beside a REQUEST_ID. */
export function onlyOne({ values }: Call, command: string): void {
  const surplus = queryOptions.find((name) => values[name] !== undefined);
  if (surplus !== undefined)
    throw new UsageError(`${command}: --${surplus} does not go with a REQUEST_ID`);
}

interface Row {
  readonly request_id: string;
  readonly from: string;
  readonly to?: string;
  readonly result: string;
}

class Tally {
  readonly rows: Row[] = [];
  /** Long lists are cut, so what was left has room of its own. */
  readonly room = { planned: CHANGES_LISTED, left: CHANGES_LISTED };
  looked = 0;
  possible = 0;
  /** Whatever is done later, the command does not change them. */
  never = 0;
  done = 0;
  waiting = 0;
  /** A stopped command can continue from this request. */
  reached: string | undefined;
}

export async function orderMany(call: Call, order: Order): Promise<ExitCode> {
  const { out, values, clock } = call;
  const { state } = values;
  if (state === undefined || !order.states.includes(state)) {
    const choice = order.states.map((one) => `--state ${one}`).join(' or ');
    throw new UsageError(`${order.action}: give a REQUEST_ID, or ${choice}`);
  }
  const { desk } = call;
  const progress = new Progress(out, clock, values.limit ?? (await desk.submissions.count(values)));
  const onHold = new Set((await desk.holds.list()).map(({ _id }) => _id));
  const tally = new Tally();
  let isStopped: boolean;
  try {
    isStopped = await orderPages(call, order, { tally, onHold, progress });
  } catch (error) {
    // What is done is told in any case, and where to go on.
    if (tally.reached !== undefined) report(call, order, tally, true);
    throw error;
  }
  report(call, order, tally, isStopped);
  if (isStopped) return EXIT.stopped;
  const isLeft = values.yes && leftOf(tally) > 0;
  return tally.looked === 0 || isLeft ? EXIT.found : EXIT.ok;
}

/** Those that workers have in hand, and those that changed meanwhile. */
const leftOf = ({ looked, done, never }: Tally): number => looked - done - never;

interface Work {
  readonly tally: Tally;
  readonly onHold: ReadonlySet<string>;
}

/** True if a signal ended it before its last request. */
async function orderPages(
  call: Call,
  order: Order,
  { tally, onHold, progress }: Work & { readonly progress: Progress },
): Promise<boolean> {
  const { desk, values, clock, stop } = call;
  const startedMs = clock.monotonicMs();
  const rate = values.yes ? (values.rate ?? RATE_DEFAULT) : Number.POSITIVE_INFINITY;
  for await (const page of desk.submissions.pages(values, { bodies: false })) {
    const size = Math.min(page.length, rate);
    for (let from = 0; from < page.length; from += size) {
      const left = (values.limit ?? Number.POSITIVE_INFINITY) - tally.looked;
      const part = page.slice(from, from + size).slice(0, left);
      if (part.length === 0) return false;
      tally.reached = part[0]?._id;
      if (stop.aborted) return true;
      await orderPart(part, call, order, { tally, onHold });
      tally.reached = part.at(-1)?._id;
      progress.add(part.length);
      const aheadMs = (tally.looked * 1_000) / rate - (clock.monotonicMs() - startedMs);
      if (aheadMs > 0) await pause(aheadMs, stop);
    }
  }
  return false;
}

async function orderPart(
  part: readonly SubmissionRecord[],
  call: Call,
  order: Order,
  { tally, onHold }: Work,
): Promise<void> {
  const { desk, values, clock } = call;
  tally.looked += part.length;
  const found = await desk.accounts.ofPerson({}, new Set(part.map(({ _id }) => _id)));
  const accounts = new Map(found.map((account) => [account.requestId, account]));
  const plans = part.map((record) => {
    const account = accounts.get(record._id);
    const claimed = claimInWords(record, clock.now());
    const plan = claimed === undefined ? order.plan(record, account) : { whyNot: claimed };
    if (claimed === undefined && plan.to === undefined) tally.never += 1;
    return { record, account, ...plan };
  });
  const planned = plans.flatMap(({ record, account, to }) =>
    to === undefined ? [] : [{ record, account, to }],
  );
  const waits = ({ record, to }: { readonly record: SubmissionRecord; readonly to?: State }) =>
    to !== undefined && isOpen(to) && onHold.has(record.partnerId ?? '');
  const done = values.yes && planned.length > 0 ? await act(planned, call, order, tally) : 0;
  const { past } = order;
  const isSure = !values.yes || done === planned.length;
  const result = !isSure
    ? `${past}, unless it changed meanwhile`
    : values.yes
      ? past
      : `would be ${past}`;
  for (const plan of plans) {
    const { record, to, whyNot } = plan;
    const kind = whyNot === undefined && isSure ? 'planned' : 'left';
    tally.room[kind] -= 1;
    if (tally.room[kind] < 0) continue;
    const held = waits(plan) ? `, and waits: ${record.partnerId} is on hold` : '';
    tally.rows.push({
      request_id: record._id,
      from: record.state,
      ...defined({ to }),
      result: whyNot ?? `${result}${held}`,
    });
  }
  tally.possible += planned.length;
  tally.waiting += planned.filter(waits).length;
}

async function act(
  planned: readonly Planned[],
  call: Call,
  order: Order,
  tally: Tally,
): Promise<number> {
  const [only] = planned;
  const which =
    planned.length === 1 && only !== undefined
      ? { requestId: only.record._id }
      : { count: planned.length };
  let done = 0;
  await call.desk.trail.record({ action: order.action, ...which }, async () => {
    for (let from = 0; from < planned.length; from += order.atOnce) {
      const some = planned.slice(from, from + order.atOnce);
      tally.reached = some[0]?.record._id;
      const count = await order.act(some, call);
      done += count;
      tally.done += count;
    }
    return done > 0;
  });
  return done;
}

function report({ out, values }: Call, { past }: Order, tally: Tally, isStopped: boolean): void {
  const { rows, looked, possible, done, waiting, never } = tally;
  const left = leftOf(tally);
  const stoppedBefore = timeOfId(tally.reached ?? '');
  if (values.json) {
    out.json({
      dry_run: !values.yes,
      looked_at: looked,
      possible,
      [past]: done,
      not_possible: never,
      ...(values.yes ? { left } : {}),
      waiting_for_a_partner_on_hold: waiting,
      requests: rows,
      ...(isStopped ? { stopped: true, stopped_before: stoppedBefore ?? null } : {}),
    });
  } else {
    const cells = rows.map(({ request_id, from, to, result }) => {
      return [request_id, to === undefined ? from : `${from} → ${to}`, printable(result)];
    });
    if (cells.length > 0) out.line(table(cells, ''));
    if (looked > rows.length) out.line(`… and ${looked - rows.length} more`);
    out.line(values.yes ? `${done} ${past}` : `${possible} would be ${past}; add --yes to do it`);
  }
  if (waiting > 0)
    out.note(`${waiting} of them wait until "partner release": their partners are on hold`);
  if (values.yes && left > 0)
    out.note(`${left} not ${past}, being worked on or changed meanwhile: run it again`);
  if (isStopped) {
    const where = stoppedBefore === undefined ? '' : ` with --since "${utc(stoppedBefore)}"`;
    out.note(`stopped: what was done stays done; to go on, give the same command${where}`);
  }
}
