/**
 * What `--help` prints: all commands, or one with its options and examples. Pure but for colours.
 */
import { paint, table } from '../platform/terminal.ts';
import type { Command } from './command.ts';
import { options, type OptionName } from './options.ts';

export const PROGRAM = 'partner-ingest';

const EXIT_CODES = [
  ['0', 'done; found; nothing wrong'],
  ['1', 'not found, not possible in its state, or "audit" found problems'],
  ['2', 'the command line or the configuration is wrong'],
  ['3', 'MongoDB is away, answers with an error, or took too long'],
  ['130', 'stopped by Ctrl-C or SIGTERM; it says how to go on'],
  ['70', 'a fault of this program'],
];

export function helpForAll(commands: readonly Command[]): string {
  return [
    `${PROGRAM}: what became of a request, and what an operator can do about it.`,
    '',
    paint('bold', 'Commands'),
    table(commands.map((command) => [usage(command), paint('dim', command.about)])),
    '',
    `${paint('bold', 'Every command')} takes --json and --help. Personal data is masked unless --reveal. Nothing that takes --yes`,
    'in its help destroys or changes anything for many without it. Times are UTC.',
    '',
    paint('bold', 'Exit codes'),
    table(EXIT_CODES),
    '',
    `${paint('bold', 'Needs')} MONGODB_URI (or MONGODB_URI_FILE), as the service does: run it in one of its pods, e.g.`,
    `  kubectl exec deploy/partner-ingest-processor -- node dist/cmd/cli/main.js audit`,
  ].join('\n');
}

export function helpFor(command: Command): string {
  const takes: readonly OptionName[] = [...command.options, 'json', 'help'];
  return [
    `${PROGRAM} ${usage(command)}${takes.length > 2 ? ' [options]' : ''}`,
    '',
    wrap(`${capital(command.about)}. ${command.details}`),
    '',
    paint('bold', 'Options'),
    table(takes.map((name) => [flag(name), paint('dim', options[name].about)])),
    '',
    paint('bold', 'Examples'),
    ...command.examples.map((example) => `  ${PROGRAM} ${example}`),
  ].join('\n');
}

function usage(command: Command): string {
  return [command.name, ...command.positionals].join(' ');
}

function flag(name: OptionName): string {
  const option = options[name];
  return 'value' in option ? `--${name} ${option.value}` : `--${name}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const LINE = 100;

function wrap(text: string): string {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1) ?? '';
    if (line.length + word.length >= LINE) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines.join('\n');
}
