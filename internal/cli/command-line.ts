/**
 * From the words of a command line to a command and its checked values, or to one clear line about
 * the mistake. Pure.
 */
import { parseArgs } from 'node:util';
import { normalizeEin, normalizeEmail } from '../application/identity.ts';
import { later } from '../platform/clock.ts';
import { timeOfId } from '../platform/ids.ts';
import { states, type State } from '../submission/states.ts';
import type { Command } from './command.ts';
import { PAGE_MAX, RATE_MAX, WHO_MAX, WHY_MAX } from './limits.ts';
import { UsageError, options, type OptionName, type Values } from './options.ts';

export interface ParsedLine {
  readonly command: Command;
  readonly positionals: readonly string[];
  readonly values: Values;
}

/** The command that `words` name, their longest beginning that is one; undefined when none is. */
export function findCommand(
  words: readonly string[],
  commands: readonly Command[],
): Command | undefined {
  const named = (command: Command): boolean =>
    command.name.split(' ').every((word, index) => words[index] === word);
  return commands.find(named);
}

/** The command and its values. Throws `UsageError`. `now` is what relative times count from. */
export function parseLine(
  words: readonly string[],
  commands: readonly Command[],
  now: Date,
): ParsedLine {
  const command = findCommand(words, commands);
  if (command === undefined) throw new UsageError(unknownCommand(words, commands));
  const { name } = command;
  const rest = words.slice(name.split(' ').length);
  const takes: readonly OptionName[] = ['help', 'json', ...command.options];
  const { tokens } = parseArgs({
    args: rest,
    options: Object.fromEntries(takes.map((option) => [option, { type: options[option].type }])),
    strict: false,
    allowPositionals: true,
    tokens: true,
  });

  const positionals: string[] = [];
  const raw: Partial<Record<OptionName, string | true>> = {};
  for (const token of tokens) {
    if (token.kind === 'positional') positionals.push(token.value);
    if (token.kind !== 'option') continue;
    const option = takes.find((known) => known === token.name);
    if (option === undefined) {
      throw new UsageError(
        `${name}: unknown option ${token.rawName}${didYouMean(token.name, takes, '--')}`,
      );
    }
    if (raw[option] !== undefined) throw new UsageError(`${name}: --${option} is given twice`);
    const takesValue = options[option].type === 'string';
    // `--limit --json` would otherwise take the second option for the value of the first.
    const missing =
      token.value === undefined ||
      token.value === '' ||
      (!token.inlineValue && token.value[0] === '-');
    if (takesValue && missing) throw new UsageError(`${name}: --${option} needs a value`);
    if (!takesValue && token.value !== undefined)
      throw new UsageError(`${name}: --${option} takes no value`);
    raw[option] = token.value ?? true;
  }
  checkPositionals(command, positionals);
  return { command, positionals, values: checkValues(name, raw, now) };
}

function checkPositionals(command: Command, given: readonly string[]): void {
  const required = command.positionals.filter((positional) => !positional.startsWith('['));
  const missing = required[given.length];
  if (missing !== undefined) throw new UsageError(`${command.name}: ${missing} is missing`);
  const surplus = given[command.positionals.length];
  if (surplus !== undefined)
    throw new UsageError(`${command.name}: "${surplus}" is one argument too many`);
}

/** Options that take any text. */
const UNCHECKED = [
  'name',
  'reason',
  'partner',
  'namespace',
  'idempotency-key',
  'request',
  'message-id',
] as const;

function checkValues(
  command: string,
  raw: Partial<Record<OptionName, string | true>>,
  now: Date,
): Values {
  const text = (option: OptionName): string | undefined => {
    const value = raw[option];
    return typeof value === 'string' ? value : undefined;
  };
  const wrong = (option: OptionName, message: string): never => {
    throw new UsageError(`${command}: --${option} ${message}`);
  };
  const checked = <T>(option: OptionName, check: (value: string) => T): Record<string, T> => {
    const value = text(option);
    return value === undefined ? {} : { [option]: check(value) };
  };
  const short = (option: OptionName, max: number) =>
    checked(option, (value) =>
      value.length > max ? wrong(option, `has more than ${max} characters`) : value,
    );
  const count = (option: OptionName, max: number) =>
    checked(
      option,
      (value) => countOf(value, max) ?? wrong(option, `must be a whole number from 1 to ${max}`),
    );
  const values: Values = {
    json: raw.json === true,
    reveal: raw.reveal === true,
    yes: raw.yes === true,
    ...Object.fromEntries(
      UNCHECKED.flatMap((option) => Object.entries(checked(option, (value) => value))),
    ),
    ...short('as', WHO_MAX),
    ...short('why', WHY_MAX),
    ...checked('email', (value) => normalizeEmail(value)),
    ...checked('ein', (value) => {
      const ein = normalizeEin(value);
      return /^[0-9]{9}$/.test(ein) ? ein : wrong('ein', 'must be nine digits');
    }),
    ...count('rate', RATE_MAX),
    ...count('limit', PAGE_MAX),
    ...checked('after', (value) =>
      timeOfId(value) === undefined ? wrong('after', 'must be a request_id') : value,
    ),
    ...checked('status', (value) =>
      /^[245]\.\d{1,3}\.\d{1,3}$/.test(value) ? value : wrong('status', 'must be like 5.1.1'),
    ),
    ...checked('state', (value) => stateOf(value) ?? wrong('state', stateHint(value))),
    ...checked('since', (value) => timeOf(value, now) ?? wrong('since', timeHint(value))),
    ...checked('until', (value) => timeOf(value, now) ?? wrong('until', timeHint(value))),
  };
  if (values['idempotency-key'] !== undefined && values.partner === undefined) {
    wrong('idempotency-key', 'needs --partner: a key is in force for one partner');
  }
  if (values.since !== undefined && values.until !== undefined && values.since >= values.until) {
    wrong('since', 'must be before --until');
  }
  return values;
}

function stateOf(value: string): State | undefined {
  return states.find((state) => state === value);
}

function stateHint(value: string): string {
  return `must be one of ${states.join(', ')}${didYouMean(value, states, '')}`;
}

const UNIT_MS: Readonly<Record<string, number>> = {
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** A day, and a time as `find` prints it or with a `T`; in UTC unless a zone follows. */
const INSTANT =
  /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?)(Z|[+-]\d{2}:\d{2})?)?$/;

/** "24h" is that long before `now`; anything else is a date, in UTC unless it says otherwise. */
function timeOf(value: string, now: Date): Date | undefined {
  const [, amount, unit] = /^(\d{1,6})([smhd])$/.exec(value) ?? [];
  if (amount !== undefined && unit !== undefined)
    return later(now, -Number(amount) * (UNIT_MS[unit] ?? 0));
  const [, day, time = '00:00', zone = 'Z'] = INSTANT.exec(value) ?? [];
  if (day === undefined) return undefined;
  const midnight = new Date(`${day}T00:00Z`);
  // JavaScript takes 30 February for 2 March.
  if (Number.isNaN(midnight.getTime()) || midnight.toISOString().slice(0, day.length) !== day)
    return undefined;
  const date = new Date(`${day}T${time}${zone}`);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

function timeHint(value: string): string {
  return `must be like 30m, 24h, 7d or 2026-11-21T09:00Z, not "${value}"`;
}

function countOf(value: string, max: number): number | undefined {
  const number = /^\d{1,9}$/.test(value) ? Number(value) : 0;
  return number >= 1 && number <= max ? number : undefined;
}

function unknownCommand(words: readonly string[], commands: readonly Command[]): string {
  const names = commands.map((command) => command.name);
  const [first = ''] = words;
  const group = names.filter((name) => name.startsWith(`${first} `));
  if (group.length > 0)
    return `"${first}" needs one of ${group.map((name) => name.slice(first.length + 1)).join(', ')}`;
  if (first.startsWith('req_')) return `unknown command "${first}": did you mean "show ${first}"?`;
  return `unknown command "${first}"${didYouMean(first, names, '')}; --help lists all`;
}

function didYouMean(word: string, known: readonly string[], prefix: string): string {
  const near = known
    .map((name) => ({ name, steps: editSteps(word, name) }))
    .filter(({ name, steps }) => steps <= Math.max(2, name.length / 3))
    .toSorted((one, other) => one.steps - other.steps)[0];
  return near === undefined ? '' : `: did you mean ${prefix}${near.name}?`;
}

/** Levenshtein distance: insertions, deletions and replacements between two words. */
function editSteps(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const letter of from.slice(0, 64)) {
    const next = [(row[0] ?? 0) + 1];
    for (let j = 1; j <= to.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (letter === to[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
