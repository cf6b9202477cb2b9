/** Runs one command line and prints the command's report; an error is one line. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { styleText } from 'node:util';
import {
  Argument,
  Command as Commander,
  CommanderError,
  InvalidArgumentError,
  Option,
  type OutputConfiguration,
} from 'commander';
import { parse } from 'yaml';
import type { z } from 'zod';
import { DeadlineError } from '../../platform/process/deadline.ts';
import { NotDurableError } from '../../platform/stores/mongo.ts';
import { tookTooLong } from '../../platform/stores/mongo-read.ts';
import { printable } from '../../application/fields.ts';
import { printableJson } from '../view/terminal.ts';
import {
  CommandError,
  EXIT,
  isOfStore,
  optionsAt,
  UsageError,
  type Call,
  type Command,
  type CommandStores,
  type ExitCode,
  type Lines,
  type OptionName,
  type Options,
  type Report,
  type Values,
} from './command.ts';
import { OrderRefused } from '../orders/order.ts';
import { erase } from './erase.ts';
import {
  aside,
  bounce,
  close,
  correctEmail,
  keysNew,
  keysRevoke,
  moveInstallation,
  partnerFlags,
  release,
  reopen,
  resend,
  retry,
} from './orders.ts';
import { receiptKeys, receiptMissing, receiptVerify } from './receipts.ts';
import {
  audit,
  exportRequests,
  find,
  installation,
  keysList,
  partnerHolds,
  partnerList,
  show,
} from './queries.ts';
import { rejudge } from './rejudge.ts';
import { partnerManifests } from './partner-manifest.ts';
import { status } from './status.ts';

const PROGRAM = 'partner-ingest';

/** Ordered as in the help. */
export const commands: readonly Command[] = [
  status,
  show,
  find,
  retry,
  resend,
  close,
  reopen,
  correctEmail,
  release,
  bounce,
  exportRequests,
  audit,
  rejudge,
  aside,
  erase,
  partnerList,
  partnerManifests,
  ...partnerFlags,
  partnerHolds,
  keysNew,
  keysList,
  keysRevoke,
  receiptKeys,
  receiptVerify,
  receiptMissing,
  installation,
  moveInstallation,
];

interface Help {
  readonly about: string;
  readonly details: string;
  readonly examples: readonly string[];
}

export const help = parse(readFileSync(new URL('help.yaml', import.meta.url), 'utf8')) as Readonly<
  Record<string, Help>
>;

type Act = (command: Command, given: Pick<Call, 'positionals' | 'values'>) => Promise<void>;

/** Mistakes and help texts are written to `output`, then a `CommanderError` is thrown. */
export function programOf(now: Date, output: OutputConfiguration, act: Act): Commander {
  const { about, details } = help[PROGRAM]!;
  const program = new Commander(PROGRAM)
    .description(about)
    .configureOutput(output)
    .configureHelp({ styleTitle: (title) => styleText('bold', title) })
    .addHelpText('after', `\n${details.trimEnd()}`)
    .exitOverride();
  const groups = new Map<string, Commander>();
  const options = optionsAt(now);
  for (const command of commands) {
    const [first = '', second] = command.name.split(' ');
    const parent = second === undefined ? program : (groups.get(first) ?? program.command(first));
    if (second !== undefined) groups.set(first, parent);
    define(parent.command(second ?? first), command, options, act);
  }
  for (const [name, group] of groups)
    group.description(`${name}: ${group.commands.map((one) => one.name()).join(', ')}`);
  return program;
}

function define(commander: Commander, command: Command, all: Options, act: Act): void {
  const { about, details, examples } = help[command.name]!;
  commander
    .summary(about)
    .description(`${about.charAt(0).toUpperCase()}${about.slice(1)}. ${details}`)
    .addHelpText(
      'after',
      ['', 'Examples:', ...examples.map((one) => `  ${PROGRAM} ${one}`)].join('\n'),
    );
  for (const { syntax, about: what, schema } of command.positionals)
    commander.addArgument(new Argument(syntax, what).argParser(checked(schema)));
  const takes: readonly OptionName[] = [...command.options, 'json'];
  for (const option of takes.map((one) => all[one])) {
    const made = new Option(option.flags, option.about);
    commander.addOption('schema' in option ? made.argParser(checked(option.schema)) : made);
  }
  commander.action(async () => {
    const values = commander.opts<Values>();
    checkTogether(command.name, values);
    const positionals = commander.processedArgs.filter((one): one is string => one !== undefined);
    await act(command, { positionals, values });
  });
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

interface Surroundings extends Pick<
  Call,
  'clock' | 'followsPartners' | 'keysNamespace' | 'processes' | 'storeFault'
> {
  readonly stdout: Writable;
  readonly note: Call['note'];
  readonly openStores: (values: Values) => CommandStores;
  /** Without this call, a signal ends the process. */
  readonly catchStop: () => AbortSignal;
}

export async function runCommand(
  words: readonly string[],
  surroundings: Surroundings,
): Promise<ExitCode> {
  const { stdout, note, clock, openStores, catchStop } = surroundings;
  let code: ExitCode = EXIT.usage;
  const output = {
    writeOut: (text: string) => write(text.trimEnd(), stdout),
    writeErr: (text: string) => note(text.trimEnd()),
    outputError: (text: string) => complain(text.replace(/^error: /, ''), surroundings),
  };
  const program = programOf(clock.now(), output, async (command, given) => {
    let stores: CommandStores | undefined;
    let stop: AbortSignal | undefined;
    const told = await command.run({
      ...surroundings,
      ...given,
      get stop() {
        return (stop ??= catchStop());
      },
      get stores() {
        return (stores ??= openStores(given.values));
      },
    });
    code = await print(told, given.values, surroundings);
  });
  try {
    await program.parseAsync(words, { from: 'user' });
    return code;
  } catch (error) {
    return explain(error, surroundings);
  }
}

type Printer = Pick<Surroundings, 'stdout' | 'note'>;

const write = (text: string, stdout: Writable): boolean => stdout.write(`${text}\n`);

async function print(
  told: Report | Lines,
  { json: isJson }: Values,
  { stdout, note }: Printer,
): Promise<ExitCode> {
  if ('lines' in told) {
    const { lines, textOf = printableJson, end } = told;
    const lineOf = isJson ? printableJson : textOf;
    for await (const line of lines) if (!write(lineOf(line), stdout)) await once(stdout, 'drain');
    const { notes = [], code = EXIT.ok } = end?.() ?? {};
    for (const one of notes) note(one);
    return code;
  }
  const { json, text, notes = [], code = EXIT.ok } = told;
  const shown = isJson ? printableJson(json, 2) : text;
  if (shown !== '') write(shown, stdout);
  for (const one of notes) note(one);
  if (told.fault !== undefined) throw told.fault;
  return code;
}

function complain(text: string, { note }: Printer): void {
  note(printable(`${PROGRAM}: ${text.trim().replaceAll('\n', ' ')}`));
}

/** Omits a driver's message, which can quote documents and addresses. */
function explain(error: unknown, surroundings: Surroundings): ExitCode {
  // Commander has printed it.
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  const say = (text: string, code: ExitCode): ExitCode => {
    complain(text, surroundings);
    return code;
  };
  if (error instanceof CommandError) return say(error.message, error.code);
  if (error instanceof OrderRefused) return say(error.message, EXIT.found);
  if (error instanceof DeadlineError || error instanceof NotDurableError) {
    return say(
      'MongoDB took too long; what was begun may be done: give the command again',
      EXIT.storeAway,
    );
  }
  if (!isOfStore(error)) {
    const name = error instanceof Error ? `${error.name}: ${error.message}` : 'unknown error';
    return say(`a fault of this program (${name})`, EXIT.fault);
  }
  if (tookTooLong(error) || (error instanceof Error && error.name === 'MongoNetworkTimeoutError')) {
    return say(
      'MongoDB took too long to answer: narrow the search with --since or --partner',
      EXIT.storeAway,
    );
  }
  return say(surroundings.storeFault(error), EXIT.storeAway);
}
