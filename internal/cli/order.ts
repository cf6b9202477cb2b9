/** Prints orders: what would happen, and with `--yes` what has happened. */
import {
  openOrder,
  OrderRefused,
  runMany,
  type ManyOrder,
  type OneOrder,
  type Given,
  type OrderPlan,
  type Outcome,
  type Tally,
} from '../orders/order.ts';
import { duration, printable, table } from '../platform/process/terminal.ts';
import { utc } from '../view/times.ts';
import {
  CommandError,
  EXIT,
  UsageError,
  type Call,
  type Command,
  type ExitCode,
} from './command.ts';
import { CHANGES_LISTED, PROGRESS_EVERY_MS } from './bounds.ts';

interface Guarded extends Command {
  /** It cannot be undone, so it needs a name. */
  readonly final?: true | undefined;
  /** It has to say why. */
  readonly reasoned?: true | undefined;
}

export function guarded({ final, reasoned, run, ...command }: Guarded): Command {
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
      try {
        return await run(call);
      } catch (error) {
        throw error instanceof OrderRefused ? new CommandError(error.message) : error;
      }
    },
  };
}

/** The command of an order about one target. */
export interface OneCommand<T> extends Omit<Guarded, 'name' | 'run' | 'final'> {
  readonly order: OneOrder<T>;
  /** It needs no `--yes`. */
  readonly atOnce?: true;
  readonly given: (call: Call) => Given;
}

export function oneCommandOf<T>(one: OneCommand<T>): Command {
  const { order, options, atOnce, positionals } = one;
  const { name, final } = order;
  return guarded({
    name,
    final,
    positionals,
    options: [...options, ...(atOnce ? [] : (['yes'] as const))],
    run: (call) => runOne(one, call),
  });
}

const CHANGED = { whyNot: 'changed meanwhile: look at it with "show" and decide again' };

export async function runOne<T>(
  { order, atOnce, given: givenBy }: OneCommand<T>,
  call: Call,
): Promise<ExitCode> {
  const { out, values } = call;
  const opened = await openOrder(order, givenBy(call), call, { reveal: !values.json });
  const { plan, words } = opened;
  const { subject, notes = [], would, done, unchanged = CHANGED, json } = words;
  const refusal = ({ whyNot, later }: OrderPlan): CommandError =>
    new CommandError(`${subject} ${whyNot}`, later && EXIT.later);
  const say = (line: string, model: object): void =>
    values.json ? out.json(model) : out.line(printable(line));
  if (plan.whyNot !== undefined) throw refusal(plan);
  if (plan.nothing !== undefined) {
    const why = plan.nothing;
    say(`${subject}  nothing to do: ${why}`, { ...json.dry, result: 'nothing_to_do', why });
  } else if (!values.yes && !atOnce)
    say(`${would}; nothing was changed; add --yes to do it`, { dry_run: true, ...json.dry });
  else {
    for (const note of notes) out.note(note);
    if (!(await opened.act())) throw refusal(unchanged);
    say(done, json.done);
  }
  return EXIT.ok;
}

/** A line of a list, for programs and for people. */
interface Row {
  readonly json: object;
  readonly cells: readonly string[];
}

interface Report {
  readonly json: object;
  readonly line: string;
  /** For people only. */
  readonly notes: readonly (string | false)[];
  /** Given again, the command may do it. */
  readonly isLeft: boolean;
  /** A stopped order goes on from here. */
  readonly since?: Date | undefined;
}

/** An order about many targets and how it is told. */
export interface Many<T> extends Omit<ManyOrder<T>, 'each' | 'paged'> {
  readonly total: number | undefined;
  row(target: T, plan: OrderPlan, outcome: Outcome): Row;
  report(tally: Tally<T>, rows: readonly Row[]): Report | Promise<Report>;
}

export async function runAll<T>(many: Many<T>, call: Call): Promise<ExitCode> {
  const tally: Tally<T> = { looked: 0, possible: 0, done: 0, isStopped: false };
  const rows: Row[] = [];
  // Long lists are cut, so what was left has room of its own.
  const room = { planned: CHANGES_LISTED, left: CHANGES_LISTED };
  const each = (target: T, plan: OrderPlan, outcome: Outcome): void => {
    const row = many.row(target, plan, outcome);
    const kind = outcome === 'left' || outcome === 'unsure' ? 'left' : 'planned';
    room[kind] -= 1;
    if (room[kind] >= 0) rows.push(row);
  };
  const order = { ...many, each, paged: progressOf(many.total, call) };
  try {
    await runMany(order, tally, call.desk.trail, call.stop);
  } catch (error) {
    // What is done is told in any case, and where to go on.
    tally.isStopped = true;
    if (tally.looked > 0) await tell(many, tally, rows, call);
    throw error;
  }
  const isLeft = await tell(many, tally, rows, call);
  if (tally.isStopped) return EXIT.stopped;
  return tally.looked === 0 || isLeft ? EXIT.found : EXIT.ok;
}

/** Returns whether something is left that the same command may do. */
async function tell<T>(
  many: Many<T>,
  tally: Tally<T>,
  rows: readonly Row[],
  { out, values }: Call,
): Promise<boolean> {
  const { looked, isStopped } = tally;
  const { json, line, notes, isLeft, since } = await many.report(tally, rows);
  if (values.json)
    out.json({ ...json, ...(isStopped ? { stopped: true, stopped_before: since ?? null } : {}) });
  else {
    const cells = rows.map((row) => row.cells.map(printable));
    if (rows.length > 0) out.line(table(cells, ''));
    if (looked > rows.length) out.line(`… and ${looked - rows.length} more`);
    out.line(line);
  }
  for (const note of notes) if (note !== false) out.note(note);
  if (isStopped) {
    const where = since === undefined ? '' : ` with --since "${utc(since)}"`;
    out.note(`stopped: what was done stays done; to go on, give the same command again${where}`);
  }
  return isLeft;
}

/** Tells now and then how many are done, the speed and the time that remains. */
function progressOf(
  total: number | undefined,
  { out, clock }: Pick<Call, 'out' | 'clock'>,
): (count: number) => void {
  const startedMs = clock.monotonicMs();
  let [toldMs, done] = [startedMs, 0];
  return (count) => {
    done += count;
    const now = clock.monotonicMs();
    if (now - toldMs < PROGRESS_EVERY_MS) return;
    toldMs = now;
    const elapsedMs = now - startedMs;
    const rate = Math.round((done * 1_000) / elapsedMs);
    const [of, time] =
      total === undefined
        ? ['', '']
        : [
            ` of about ${total}`,
            `, about ${duration((Math.max(0, total - done) * elapsedMs) / done)} left`,
          ];
    out.note(`${done}${of} requests, ${rate} a second${time}`);
  };
}
