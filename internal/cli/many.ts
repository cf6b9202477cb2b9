/**
 * One order for all requests of a query: a dry run first, then page after page, with a rate and a
 * place to go on from.
 */
import type { Account } from '../account/account.ts';
import { pause } from '../platform/deadline.ts';
import { printable, table } from '../platform/terminal.ts';
import type { State } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { EXIT, type Call, type ExitCode } from './command.ts';
import { CHANGES_LISTED } from './limits.ts';
import type { OptionName } from './options.ts';
import { Progress } from './progress.ts';
import { UsageError } from './options.ts';

export type Plan =
  | { readonly to: State; readonly whyNot?: never }
  | { readonly to?: never; readonly whyNot: string };

/** A request that the order can be given to. */
export interface Planned {
  readonly record: SubmissionRecord;
  readonly account: Account | undefined;
  readonly to: State;
}

export interface Order {
  readonly action: 'retry' | 'resend' | 'close';
  /** `retried`, in a sentence. */
  readonly past: string;
  /** States of which all can be ordered at once. */
  readonly states: readonly State[];
  /** Requests a second unless `--rate` says otherwise; undefined: as fast as the database. */
  readonly rate: number | undefined;
  plan(record: SubmissionRecord, account: Account | undefined): Plan;
  /** Does it; returns how many were unchanged and done. */
  act(planned: readonly Planned[], call: Call): Promise<number>;
}

/** What a query of many is made of; none goes with a REQUEST_ID. */
export const queryOptions = [
  'state',
  'reason',
  'partner',
  'since',
  'until',
  'limit',
  'rate',
  'after',
] as const satisfies OptionName[];

/** Throws where a command that names its REQUEST_ID has options of a query, too. */
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
  looked = 0;
  possible = 0;
  done = 0;
  lastId: string | undefined;
}

export async function orderMany(call: Call, order: Order): Promise<ExitCode> {
  const { out, values, clock } = call;
  const { state } = values;
  if (state === undefined || !order.states.includes(state)) {
    const choice = order.states.map((one) => `--state ${one}`).join(' or ');
    throw new UsageError(`${order.action}: give a REQUEST_ID, or ${choice}`);
  }
  const { desk, stop } = call;
  const progress = new Progress(out, clock, values.limit ?? (await desk.submissions.count(values)));
  const tally = new Tally();
  const startedMs = clock.monotonicMs();
  const rate = values.yes ? (values.rate ?? order.rate) : undefined;
  pages: for await (const page of desk.submissions.pages(values, {
    bodies: false,
    after: values.after,
  })) {
    const size = Math.min(page.length, rate ?? page.length);
    for (let from = 0; from < page.length; from += size) {
      const left = (values.limit ?? Number.POSITIVE_INFINITY) - tally.looked;
      const part = page.slice(from, from + size).slice(0, left);
      if (part.length === 0 || stop.aborted) break pages;
      await orderPart(part, call, order, tally);
      progress.add(part.length);
      const aheadMs =
        rate === undefined ? 0 : (tally.looked * 1_000) / rate - (clock.monotonicMs() - startedMs);
      if (aheadMs > 0) await pause(aheadMs, stop);
    }
  }
  report(call, order, tally);
  if (stop.aborted) return EXIT.stopped;
  return tally.looked === 0 ? EXIT.found : EXIT.ok;
}

async function orderPart(
  part: readonly SubmissionRecord[],
  call: Call,
  order: Order,
  tally: Tally,
): Promise<void> {
  const { desk, values } = call;
  const found = await desk.accounts.ofPerson({}, new Set(part.map(({ _id }) => _id)));
  const accounts = new Map(found.map((account) => [account.requestId, account]));
  const planned: Planned[] = [];
  for (const record of part) {
    const account = accounts.get(record._id);
    const { to, whyNot } = order.plan(record, account);
    if (to !== undefined) planned.push({ record, account, to });
    if (tally.rows.length >= CHANGES_LISTED) continue;
    const result = whyNot ?? (values.yes ? order.past : `would be ${order.past}`);
    tally.rows.push({
      request_id: record._id,
      from: record.state,
      ...(to === undefined ? {} : { to }),
      result,
    });
  }
  if (values.yes && planned.length > 0) {
    const act = async (): Promise<boolean> => {
      const done = await order.act(planned, call);
      tally.done += done;
      return done > 0;
    };
    const [only] = planned;
    const which =
      planned.length === 1 && only !== undefined
        ? { requestId: only.record._id }
        : { count: planned.length };
    await desk.trail.record({ action: order.action, ...which }, act);
  }
  tally.looked += part.length;
  tally.possible += planned.length;
  tally.lastId = part.at(-1)?._id;
}

function report({ out, values, stop }: Call, { past }: Order, tally: Tally): void {
  const { rows, looked, possible, done, lastId } = tally;
  if (values.json) {
    const stopped = stop.aborted && lastId !== undefined ? { stopped_after: lastId } : {};
    out.json({
      dry_run: !values.yes,
      looked_at: looked,
      possible,
      [past]: done,
      requests: rows,
      ...stopped,
    });
  } else {
    const cells = rows.map(({ request_id, from, to, result }) => {
      return [request_id, to === undefined ? from : `${from} → ${to}`, printable(result)];
    });
    if (cells.length > 0) out.line(table(cells, ''));
    if (looked > rows.length) out.line(`… and ${looked - rows.length} more`);
    out.line(values.yes ? `${done} ${past}` : `${possible} would be ${past}; add --yes to do it`);
  }
  if (values.yes && done < possible)
    out.note(`${possible - done} changed meanwhile or are being worked on: run it again`);
  if (stop.aborted) {
    const where = lastId === undefined ? '' : ` with --after ${lastId}`;
    out.note(`stopped: what was done stays done; to go on, give the same command${where}`);
  }
}
