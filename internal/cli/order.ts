/**
 * One order for operators: what is selected is planned, shown, done with `--yes`, and told. A
 * request id is a query of one.
 */
import type { OperatorAction } from '../audit/entry.ts';
import type { Plan } from '../view/plans.ts';
import { CommandError, EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { UsageError, type OptionName } from './options.ts';

/** `nothing` says that the order was carried out before. */
export interface OrderPlan extends Omit<Plan, 'to'> {
  readonly to?: string;
  readonly nothing?: string;
}

export interface Words {
  /** Begins the sentences that say why not. */
  readonly subject: string;
  readonly about: Omit<OperatorAction, 'action'>;
  readonly would?: string;
  readonly done: string;
  /** Continues `subject`; by default the target has changed since it was read. */
  readonly unchanged?: string;
  /** It may be given again in some minutes. */
  readonly unchangedIsLater?: true;
  readonly notes?: readonly string[];
  readonly json: { readonly dry?: object; readonly done: object };
}

export interface Order<T> extends Omit<Command, 'run' | 'options'> {
  readonly options?: readonly OptionName[];
  /** One target needs no `--yes`. */
  readonly atOnce?: true;
  /** It cannot be undone, so it needs a name. */
  readonly final?: true;
  /** It has to say why. */
  readonly reasoned?: true;
  select(call: Call): Promise<T>;
  plan(target: T, call: Call): OrderPlan;
  /** Returns how many targets were unchanged and done, or what one lacks that is done by half. */
  act(targets: readonly T[], call: Call): Promise<number | CommandError>;
  /** `to` is what the plan leads to. */
  words(target: T, call: Call, to: string | undefined): Words;
}

/** Gives the order for all requests of a query. */
export type Many = (call: Call) => Promise<ExitCode>;

export const queryOptions = [
  'state',
  'reason',
  'partner',
  'since',
  'until',
  'limit',
  'rate',
] as const satisfies OptionName[];

/** Without `many`, there is always one target. */
export function commandOf<T>(order: Order<T>, many?: Many): Command {
  const { name, positionals, about, details, examples, atOnce, options = [] } = order;
  return {
    name,
    positionals,
    about,
    details,
    examples,
    options: [
      ...(many === undefined ? [] : queryOptions),
      ...options,
      ...(atOnce === true && many === undefined ? [] : (['yes'] as const)),
      'as',
      'why',
    ],
    run: (call) => run(call, order, many),
  };
}

async function run<T>(call: Call, order: Order<T>, many: Many | undefined): Promise<ExitCode> {
  const { name, reasoned, final } = order;
  const { values, positionals } = call;
  if (reasoned === true && values.yes && values.why === undefined)
    throw new UsageError(`${name}: --why is missing: it is the reason`);
  if (final === true && values.yes) assertNamed(call, name);
  if (many === undefined) return orderOne(call, order);
  if (positionals[0] === undefined) return many(call);
  const surplus = queryOptions.find((option) => values[option] !== undefined);
  if (surplus === undefined) return orderOne(call, order);
  throw new UsageError(`${name}: --${surplus} does not go with a REQUEST_ID`);
}

/** What cannot be undone is not done by "somebody in a pod". */
export function assertNamed({ desk }: Call, name: string): void {
  if (desk.trail.nameFrom === 'host')
    throw new UsageError(`${name}: --as is missing: it cannot be undone, so say who you are`);
}

async function orderOne<T>(call: Call, order: Order<T>): Promise<ExitCode> {
  const { desk, out, values } = call;
  const target = await order.select(call);
  const plan = order.plan(target, call);
  const words = order.words(target, call, plan.to);
  const { subject, notes = [], json } = words;
  if (plan.nothing !== undefined) {
    const why = plan.nothing;
    if (values.json) out.json({ ...json.dry, result: 'nothing_to_do', why });
    else out.line(`${subject}  nothing to do: ${why}`);
    return EXIT.ok;
  }
  if (plan.whyNot !== undefined)
    throw new CommandError(`${subject} ${plan.whyNot}`, plan.later && EXIT.later);
  if (order.atOnce !== true && !values.yes) {
    if (values.json) out.json({ dry_run: true, ...json.dry });
    else out.line(`${words.would}; nothing was changed; add --yes to do it`);
    return EXIT.ok;
  }
  const done = await desk.trail.record({ action: order.name, ...words.about }, () =>
    order.act([target], call),
  );
  for (const note of notes) out.note(note);
  if (done instanceof CommandError) throw done;
  if (done === 0) {
    const code = words.unchangedIsLater && EXIT.later;
    throw new CommandError(`${subject} ${words.unchanged ?? CHANGED}`, code);
  }
  if (values.json) out.json(json.done);
  else out.line(words.done);
  return EXIT.ok;
}

/** A worker or another operator was faster. */
const CHANGED = 'changed meanwhile: look at it with "show" and decide again';
