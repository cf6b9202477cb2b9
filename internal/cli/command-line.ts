/** Turns a command line into a command and its checked values, with commander and zod. */
import { styleText } from 'node:util';
import {
  Argument,
  Command as Commander,
  InvalidArgumentError,
  Option,
  type OutputConfiguration,
} from 'commander';
import type { z } from 'zod';
import type { Command } from './command.ts';
import { optionsAt, UsageError, type OptionName, type Values } from './options.ts';

export const PROGRAM = 'partner-ingest';

const MORE = `
Personal data is masked unless --reveal. What cannot be undone, mails an applicant again or concerns
many only lists what would happen unless --yes. Times are UTC, in and out.

Exit codes:
  0    done; found; nothing wrong
  1    not found, not possible in its state, something left to do, or "audit" found problems
  2    the command line or the configuration is wrong
  3    MongoDB is away, answers with an error, or took too long
  75   not now: the bounce of a mail whose request is not completed yet
  130  stopped by Ctrl-C or SIGTERM; it says how to go on
  70   a fault of this program

Needs MONGODB_URI (or MONGODB_URI_FILE), as the service does: run it in one of its pods, e.g.
  kubectl exec deploy/partner-ingest-processor -- node dist/cmd/cli/main.js audit`;

interface Given {
  readonly command: Command;
  readonly positionals: readonly string[];
  readonly values: Values;
}

/** Each mistake and each help text ends in a `CommanderError` after `output` has it. */
export function programOf(
  commands: readonly Command[],
  options: {
    readonly now: Date;
    readonly output: OutputConfiguration;
    readonly act: (given: Given) => Promise<void>;
  },
): Commander {
  const program = new Commander(PROGRAM)
    .description('What became of a request, and what an operator can do about it.')
    .configureOutput(options.output)
    .configureHelp({ styleTitle: (title) => styleText('bold', title) })
    .addHelpText('after', MORE)
    .exitOverride();
  const groups = new Map<string, Commander>();
  for (const command of commands) {
    const [first = '', second] = command.name.split(' ');
    const parent = second === undefined ? program : (groups.get(first) ?? program.command(first));
    if (second !== undefined) groups.set(first, parent);
    define(parent.command(second ?? first), command, options);
  }
  for (const [name, group] of groups)
    group.description(`${name}: ${group.commands.map((one) => one.name()).join(', ')}`);
  return program;
}

function define(
  commander: Commander,
  command: Command,
  { now, act }: { readonly now: Date; readonly act: (given: Given) => Promise<void> },
): void {
  const { name, about, details, examples } = command;
  commander
    .summary(about)
    .description(`${about.charAt(0).toUpperCase()}${about.slice(1)}. ${details}`)
    .addHelpText('after', ['', 'Examples:', ...examples.map(exampleLine)].join('\n'));
  for (const { syntax, about: what, schema } of command.positionals)
    commander.addArgument(new Argument(syntax, what).argParser(checked(schema)));
  const all = optionsAt(now);
  const takes: readonly OptionName[] = [...command.options, 'json'];
  for (const option of takes.map((one) => all[one])) {
    const made = new Option(option.flags, option.about);
    commander.addOption('schema' in option ? made.argParser(checked(option.schema)) : made);
  }
  commander.action(async () => {
    const given = commander.opts<Partial<Values>>();
    const values: Values = { ...given, ...switchesOf(given) };
    checkTogether(name, values);
    const positionals = commander.processedArgs.filter((one): one is string => one !== undefined);
    await act({ command, positionals, values });
  });
}

function switchesOf({ json = false, reveal = false, yes = false }: Partial<Values>) {
  return { json, reveal, yes };
}

function exampleLine(example: string): string {
  return `  ${PROGRAM} ${example}`;
}

function checked(schema: z.ZodType): (value: string, previous: unknown) => unknown {
  return (value, previous) => {
    if (previous !== undefined) throw new InvalidArgumentError('It is given twice.');
    const result = schema.safeParse(value);
    if (result.success) return result.data;
    throw new InvalidArgumentError(result.error.issues[0]?.message ?? '');
  };
}

function checkTogether(name: string, { idempotencyKey, partner, since, until }: Values): void {
  if (idempotencyKey !== undefined && partner === undefined)
    throw new UsageError(
      `${name}: --idempotency-key needs --partner: a key counts for one partner`,
    );
  if (since !== undefined && until !== undefined && since >= until)
    throw new UsageError(`${name}: --since must be before --until`);
}
