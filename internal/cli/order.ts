/**
 * One order for operators: what is selected, a page at a time, is planned, shown, done with
 * `--yes`, and told. A request id is a query of one.
 */
import type { OperatorAction } from '../audit/entry.ts';
import { printable, table } from '../platform/terminal.ts';
import type { Plan } from '../view/plans.ts';
import { utc } from '../view/times.ts';
import {
  CommandError,
  EXIT,
  UsageError,
  type Call,
  type Command,
  type ExitCode,
} from './command.ts';
import { CHANGES_LISTED } from './limits.ts';
import { type OptionName } from './options.ts';
import { progressOf } from './progress.ts';

/** `nothing` says that the order was carried out before. */
export interface OrderPlan extends Omit<Plan, 'to'> {
  readonly to?: string;
  readonly nothing?: string;
}

/** A write of several targets does not say which of them had changed: then each is `unsure`. */
export type Outcome = 'possible' | 'done' | 'unsure' | 'left';

/** A line of a list, for programs and for people. */
interface Row {
  readonly json: object;
  readonly cells: readonly string[];
}

export interface Tally<T> {
  readonly rows: Row[];
  /** Long lists are cut, so what was left has room of its own. */
  readonly room: { planned: number; left: number };
  looked: number;
  possible: number;
  done: number;
  reached?: T | undefined;
  isStopped: boolean;
}

interface Report {
  readonly json: object;
  readonly line: string;
  /** For people only. */
  readonly notes?: readonly (string | false)[];
  /** Given again, the command may do it. */
  readonly isLeft?: boolean;
  /** A stopped order goes on from here. */
  readonly since?: Date | undefined;
}

type About = Omit<OperatorAction, 'action'>;

/** The order of one call. */
export interface Order<T> {
  /** Each page is read when the one before is done. */
  readonly pages: AsyncIterable<readonly T[]> | Iterable<readonly T[]>;
  /** How many targets one call of `act` takes. */
  readonly size: number;
  /** Without `--yes`, an order tells what would happen. */
  readonly acts: boolean;
  /** Undefined if the order is not about the target. */
  plan(target: T): OrderPlan | undefined;
  /** Returns how many targets were unchanged and done. */
  act(targets: readonly T[]): Promise<number>;
  /** For the trail: of a page, or of the whole order, which then is one entry. */
  readonly about: About | ((targets: readonly T[]) => About);
  report(tally: Tally<T>): Report | Promise<Report>;
  /** Many targets are listed; progress is told, and Ctrl-C stops the order between two pages. */
  readonly many?: {
    readonly total: number | undefined;
    row(target: T, plan: OrderPlan, outcome: Outcome): Row;
  };
}

interface OrderCommand<T> extends Omit<Command, 'run'> {
  /** It cannot be undone, so it needs a name. */
  readonly final?: true | undefined;
  /** It has to say why. */
  readonly reasoned?: true | undefined;
  readonly order: (call: Call) => Order<T> | Promise<Order<T>>;
}

export function commandOf<T>({ final, reasoned, order, ...command }: OrderCommand<T>): Command {
  const { name, options } = command;
  return {
    ...command,
    options: [...options, 'as', 'why'],
    run: async (call) => {
      const { yes, why } = call.values;
      if (reasoned && yes && why === undefined)
        throw new UsageError(`${name}: --why is missing: it is the reason`);
      // What cannot be undone is not done by "somebody in a pod".
      if (final && yes && call.desk.trail.nameFrom === 'host')
        throw new UsageError(`${name}: --as is missing: it cannot be undone, so say who you are`);
      const room = { planned: CHANGES_LISTED, left: CHANGES_LISTED };
      const tally = { rows: [], room, looked: 0, possible: 0, done: 0, isStopped: false };
      return run({ action: name, order: await order(call), call, tally });
    },
  };
}

interface Work<T> {
  readonly action: string;
  readonly order: Order<T>;
  readonly call: Call;
  readonly tally: Tally<T>;
}

async function run<T>(work: Work<T>): Promise<ExitCode> {
  const { order, tally } = work;
  const { about, many } = order;
  try {
    await noted(typeof about === 'function' ? undefined : about, work, () => runPages(work));
  } catch (error) {
    // What is done is told in any case, and where to go on.
    tally.isStopped = true;
    if (many !== undefined && tally.looked > 0) await tell(work);
    throw error;
  }
  const isLeft = await tell(work);
  if (tally.isStopped) return EXIT.stopped;
  return tally.looked === 0 || isLeft ? EXIT.found : EXIT.ok;
}

/** `act` returns how many targets were done. */
async function noted<T>(
  about: About | undefined,
  work: Work<T>,
  act: () => Promise<number>,
): Promise<void> {
  const { action, order, call } = work;
  if (about === undefined || !order.acts) await act();
  else await call.desk.trail.record({ action, ...about }, act);
}

async function runPages<T>(work: Work<T>): Promise<number> {
  const { order, call, tally } = work;
  const stop = order.many && call.stop;
  const progress = order.many && progressOf(order.many.total, call);
  for await (const page of order.pages) {
    tally.reached = page[0];
    tally.isStopped = stop?.aborted === true;
    if (tally.isStopped) break;
    await runPage(page, work);
    progress?.(page.length);
  }
  return tally.done;
}

async function runPage<T>(page: readonly T[], work: Work<T>): Promise<void> {
  const { order, tally } = work;
  const { about, size } = order;
  const plans = page.flatMap((target) => {
    const plan = order.plan(target);
    return plan === undefined ? [] : [{ target, plan }];
  });
  const possible = plans.flatMap(({ target, plan }) => (plan.to === undefined ? [] : [target]));
  const entry = typeof about === 'function' && possible.length > 0 ? about(possible) : undefined;
  await noted(entry, work, async () => {
    const before = tally.done;
    for (let from = 0; from < plans.length; from += size)
      await runSome(plans.slice(from, from + size), work);
    return tally.done - before;
  });
}

async function runSome<T>(
  some: readonly { readonly target: T; readonly plan: OrderPlan }[],
  work: Work<T>,
): Promise<void> {
  const { order, tally } = work;
  const possible = some.flatMap(({ target, plan }) => (plan.to === undefined ? [] : [target]));
  tally.reached = some[0]?.target;
  tally.looked += some.length;
  tally.possible += possible.length;
  const done = order.acts && possible.length > 0 ? await order.act(possible) : 0;
  tally.done += done;
  const sure = done === possible.length ? 'done' : 'unsure';
  for (const { target, plan } of some) {
    const outcome = plan.to === undefined ? 'left' : order.acts ? sure : 'possible';
    const row = order.many?.row(target, plan, outcome);
    const kind = outcome === 'left' || outcome === 'unsure' ? 'left' : 'planned';
    tally.room[kind] -= 1;
    if (row !== undefined && tally.room[kind] >= 0) tally.rows.push(row);
  }
}

/** Returns whether something is left that the same command may do. */
async function tell<T>({ order, call, tally }: Work<T>): Promise<boolean> {
  const { out, values } = call;
  const { rows, looked, isStopped } = tally;
  const { json, line, notes = [], isLeft = false, since } = await order.report(tally);
  if (values.json)
    out.json({ ...json, ...(isStopped ? { stopped: true, stopped_before: since ?? null } : {}) });
  else {
    if (rows.length > 0)
      out.line(
        table(
          rows.map(({ cells }) => cells.map(printable)),
          '',
        ),
      );
    if (order.many !== undefined && looked > rows.length)
      out.line(`… and ${looked - rows.length} more`);
    out.line(line);
  }
  for (const note of notes) if (note !== false) out.note(note);
  if (isStopped) {
    const where = since === undefined ? '' : ` with --since "${utc(since)}"`;
    out.note(`stopped: what was done stays done; to go on, give the same command again${where}`);
  }
  return isLeft;
}

export interface Words {
  /** Begins the sentences that say why not. */
  readonly subject: string;
  readonly about: About;
  readonly would?: string;
  readonly done: string;
  /** Why a target that has changed since it was read was left. */
  readonly unchanged?: OrderPlan;
  readonly json: { readonly dry?: object; readonly done: object };
}

const CHANGED = { whyNot: 'changed meanwhile: look at it with "show" and decide again' };

/** A command about one target. `to` is what its plan leads to. */
export interface OneCommand<T> extends Omit<OrderCommand<T>, 'order' | 'options'> {
  readonly options?: readonly OptionName[];
  /** It needs no `--yes`. */
  readonly atOnce?: true;
  select(call: Call): Promise<T>;
  plan(target: T, call: Call): OrderPlan;
  /** False if the target has changed since it was read. */
  act(target: T, call: Call): Promise<boolean>;
  words(target: T, call: Call, to: string | undefined): Words;
}

export function oneCommandOf<T>(command: OneCommand<T>): Command {
  const { options = [], atOnce } = command;
  return commandOf({
    ...command,
    options: [...options, ...(atOnce ? [] : (['yes'] as const))],
    order: (call) => orderOf(command, call),
  });
}

export async function orderOf<T>(one: OneCommand<T>, call: Call): Promise<Order<T>> {
  const target = await one.select(call);
  const plan = one.plan(target, call);
  const words = one.words(target, call, plan.to);
  const { subject, about, would, done, unchanged = CHANGED, json } = words;
  const refusal = ({ whyNot, later }: OrderPlan): CommandError =>
    new CommandError(`${subject} ${whyNot}`, later && EXIT.later);
  if (plan.whyNot !== undefined) throw refusal(plan);
  const { yes = false } = call.values;
  const acts = yes || one.atOnce === true;
  return {
    pages: [[target]],
    size: 1,
    acts,
    plan: () => plan,
    act: async () => Number(await one.act(target, call)),
    about: () => about,
    report: (tally) => {
      if (plan.nothing !== undefined) {
        const why = plan.nothing;
        return {
          json: { ...json.dry, result: 'nothing_to_do', why },
          line: `${subject}  nothing to do: ${why}`,
        };
      }
      if (!acts)
        return {
          json: { dry_run: true, ...json.dry },
          line: `${would}; nothing was changed; add --yes to do it`,
        };
      if (tally.done === 0) throw refusal(unchanged);
      return { json: json.done, line: done };
    },
  };
}
