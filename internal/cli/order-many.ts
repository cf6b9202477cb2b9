/** Gives an order for all requests of a query, page by page at a rate. */
import { defined } from '../platform/defined.ts';
import { pause } from '../platform/deadline.ts';
import { timeOfId } from '../platform/ids.ts';
import { printable, table } from '../platform/terminal.ts';
import { openStates, type State } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { utc } from '../view/times.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { CHANGES_LISTED, RATE_DEFAULT } from './limits.ts';
import { UsageError } from './options.ts';
import { commandOf, type Order } from './order.ts';
import { Progress } from './progress.ts';
import type { RequestTarget } from './request-target.ts';

interface Query {
  readonly past: string;
  readonly states: readonly State[];
  /** The number of requests that one call of `act` takes. */
  readonly size: number;
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

  /** Those that workers have in hand, and those that changed meanwhile. */
  get left(): number {
    return this.looked - this.done - this.never;
  }
}

type RequestOrder = Order<RequestTarget>;

interface Work {
  readonly call: Call;
  readonly order: RequestOrder;
  readonly query: Query;
  readonly tally: Tally;
  readonly onHold: ReadonlySet<string>;
}

/** With a request id the order is about one, else about all of a query. */
export function manyCommandOf(order: RequestOrder, query: Query): Command {
  const { past } = query;
  const details = `${order.details} With --state, all that match are counted, and ${past} only with --yes; Ctrl-C stops it between two pages.`;
  return commandOf({ ...order, details }, (call) => orderMany(call, order, query));
}

async function orderMany(call: Call, order: RequestOrder, query: Query): Promise<ExitCode> {
  const { values, clock, out } = call;
  const { state } = values;
  if (state === undefined || !query.states.includes(state)) {
    const choice = query.states.map((one) => `--state ${one}`).join(' or ');
    throw new UsageError(`${order.name}: give a REQUEST_ID, or ${choice}`);
  }
  const { desk } = call;
  const progress = new Progress(out, clock, values.limit ?? (await desk.submissions.count(values)));
  const onHold = new Set((await desk.holds.list()).map(({ _id }) => _id));
  const tally = new Tally();
  const work = { call, order, query, tally, onHold };
  let isStopped: boolean;
  try {
    isStopped = await pages(work, progress);
  } catch (error) {
    // What is done is told in any case, and where to go on.
    if (tally.reached !== undefined) report(work, true);
    throw error;
  }
  report(work, isStopped);
  if (isStopped) return EXIT.stopped;
  return tally.looked === 0 || (values.yes && tally.left > 0) ? EXIT.found : EXIT.ok;
}

/** True if a signal ended it before its last request. */
async function pages(work: Work, progress: Progress): Promise<boolean> {
  const { tally } = work;
  const { desk, values, clock, stop } = work.call;
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
      await orderPart(part, work);
      tally.reached = part.at(-1)?._id;
      progress.add(part.length);
      const aheadMs = (tally.looked * 1_000) / rate - (clock.monotonicMs() - startedMs);
      if (aheadMs > 0) await pause(aheadMs, stop);
    }
  }
  return false;
}

async function orderPart(part: readonly SubmissionRecord[], work: Work): Promise<void> {
  const { call, order, query, tally, onHold } = work;
  const { desk, values } = call;
  tally.looked += part.length;
  const found = await desk.accounts.ofPerson({}, new Set(part.map(({ _id }) => _id)));
  const accounts = new Map(found.map((account) => [account.requestId, account]));
  const plans = part.map((record) => {
    const isHeld = onHold.has(record.partnerId ?? '');
    const target = { record, account: accounts.get(record._id), onHold: isHeld };
    const plan = order.plan(target, call);
    if (plan.to === undefined && plan.inHand !== true) tally.never += 1;
    return {
      ...target,
      ...plan,
      waits: isHeld && (openStates as readonly unknown[]).includes(plan.to),
    };
  });
  const planned = plans.filter(({ to }) => to !== undefined);
  const done = values.yes && planned.length > 0 ? await act(planned, work) : 0;
  const isSure = !values.yes || done === planned.length;
  const result = values.yes ? query.past : `would be ${query.past}`;
  for (const { record, to, whyNot, nothing, waits } of plans) {
    const left = whyNot ?? nothing;
    const kind = left === undefined && isSure ? 'planned' : 'left';
    tally.room[kind] -= 1;
    if (tally.room[kind] < 0) continue;
    const unsure = isSure ? '' : ', unless it changed meanwhile';
    const held = waits && isSure ? `, and waits: ${record.partnerId} is on hold` : '';
    tally.rows.push({
      request_id: record._id,
      from: record.state,
      ...defined({ to }),
      result: left ?? result + unsure + held,
    });
  }
  tally.possible += planned.length;
  tally.waiting += planned.filter(({ waits }) => waits).length;
}

async function act(
  planned: readonly RequestTarget[],
  { call, order, query, tally }: Work,
): Promise<number> {
  const [only] = planned;
  const which =
    planned.length === 1 && only !== undefined
      ? { requestId: only.record._id }
      : { count: planned.length };
  return call.desk.trail.record({ action: order.name, ...which }, async () => {
    let done = 0;
    for (let from = 0; from < planned.length; from += query.size) {
      const some = planned.slice(from, from + query.size);
      tally.reached = some[0]?.record._id;
      const count = await order.act(some, call);
      if (typeof count !== 'number') throw count;
      done += count;
      tally.done += count;
    }
    return done;
  });
}

function report({ call, query, tally }: Work, isStopped: boolean): void {
  const { out, values } = call;
  const { past } = query;
  const { rows, looked, possible, done, waiting, never, left } = tally;
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
