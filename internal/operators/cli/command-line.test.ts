/** What is read from a command line: its values, or one line of error and an exit code. */
import { PassThrough } from 'node:stream';
import { expect, test } from '@jest/globals';
import { systemClock } from '../../platform/process/clock.ts';
import { MongoServerError } from 'mongodb';
import { DeadlineError } from '../../platform/process/deadline.ts';
import { NotDurableError } from '../../platform/stores/mongo.ts';
import { CommandError, EXIT, UsageError, type CommandStores, type Values } from './command.ts';
import { help, runCommand } from './command-line.ts';
import { FIND_DEFAULT } from './queries.ts';
import { OPEN_COUNTED } from '../view/partners.ts';
import { utc } from '../view/words.ts';

const now = new Date('2026-11-25T12:00:00Z');

const run = (...words: readonly string[]) =>
  runWith(new UsageError('a store was opened'), ...words);

/** The command, whose store fails with `fault` as it is opened. */
const runWith = (fault: Error, ...words: readonly string[]) =>
  runOn(
    () => {
      throw fault;
    },
    ...words,
  );

async function runOn(open: () => CommandStores, ...words: readonly string[]) {
  let notes = '';
  let values: Values | undefined;
  const stdout = new PassThrough({ encoding: 'utf8' });
  const openStores = (given: Values): CommandStores => {
    values = given;
    return open();
  };
  const code = await runCommand(words, {
    stdout,
    note: (text) => void (notes += `${text}\n`),
    keysNamespace: 'keys',
    followsPartners: false,
    processes: [],
    clock: { now: () => now, monotonicMs: () => systemClock.monotonicMs() },
    openStores,
    catchStop: () => new AbortController().signal,
    storeFault: () => 'the store',
  });
  return { code, values, answer: String(stdout.read() ?? ''), notes };
}

const find = ['find', '--state', 'completed'] as const;
const mistakes: [words: string[], line: string][] = [
  [['shwo'], "partner-ingest: unknown command 'shwo' (Did you mean show?)"],
  [['show'], "missing required argument 'REQUEST_ID'"],
  [['show', 'a', '--revael'], "unknown option '--revael' (Did you mean --reveal?)"],
  [['show', 'a', '-x\u001b[2J'], "unknown option '-x\ufffd[2J'"],
  [['find'], 'find: give at least one of --email, --ein'],
  [[...find, '--limit', '0'], "argument '0' is invalid. It must be a whole number from 1 to 1000."],
  [[...find, '--name', '--json'], 'It needs a value.'],
  [['find', '--state', 'dead-lettered'], 'It must be one of recorded, account_created,'],
  [['find', '--ein', '12345678'], 'It must be nine digits.'],
  [['find', '--since', '1h', '--until', '2h'], 'find: --since must be before --until'],
  [['find', '--idempotency-key', 'a'], 'find: --idempotency-key needs --partner'],
  [['find', '--partner', 'a', '--partner', 'b'], 'It is given twice.'],
  [['bounce', '--request', 'a', '--status', '9'], 'It must be like 5.1.1.'],
  [['retry'], 'retry: give a REQUEST_ID, or --state dead_lettered or --state undeliverable'],
  [['retry', 'req_x', '--since', '1h'], 'retry: --since does not go with a REQUEST_ID'],
  [['account', 'correct-email', 'req_x', 'no address'], 'It is not a valid e-mail address.'],
  [['erase'], 'erase: give one of REQUEST_ID, --email or --ein'],
  [['keys', 'new', '../etc'], 'It must be 1 to 63 letters'],
  [['keys', 'revoke', 'pik_x', '--yes'], 'hexadecimal digits that "keys list" shows'],
  ...['yesterday', '2026-02-30', '2026-11-21T25:00', '1e3m'].map((when): [string[], string] => [
    ['find', '--since', when],
    'It must be like 30m, 24h, 7d or',
  ]),
];
test.each(mistakes)('%j exits with 2 and one line', async (words, line) => {
  const { code, values, answer, notes } = await run(...words);
  expect({ code, values, answer, lines: notes.trimEnd().split('\n').length }).toEqual({
    code: 2,
    answer: '',
    lines: 1,
  });
  expect(notes).toContain(line);
});

test.each([
  ['24h', '2026-11-24T12:00:00.000Z'],
  ['2026-11-21', '2026-11-21T00:00:00.000Z'],
  ['2026-11-21 09:03:11.120', '2026-11-21T09:03:11.120Z'],
  ['2026-11-21T09:03:11+02:00', '2026-11-21T07:03:11.000Z'],
  [utc(now), now.toISOString()],
  [`${utc(now)} UTC`, now.toISOString()],
])('--since %s is %s, in UTC unless it says otherwise', async (value, expected) => {
  expect((await run('find', '--since', value)).values?.since?.toISOString()).toBe(expected);
});

test.each<[Error, number, string]>([
  [new DeadlineError('write took longer than 10000 ms'), 3, 'MongoDB took too long'],
  [new NotDurableError('no majority acknowledged the write in time'), 3, 'MongoDB took too long'],
  [new MongoServerError({ message: 'secret', code: 1 }), 3, 'the store'],
  [new CommandError('there is none'), 1, 'there is none'],
  [new CommandError('not yet', EXIT.later), 75, 'not yet'],
  [new TypeError('a bug'), 70, 'a fault of this program'],
])('%s ends with %i', async (error, code, line) => {
  const ran = await runWith(error, ...find);
  expect(ran).toMatchObject({ code, answer: '' });
  expect(ran.notes).toContain(line);
  expect(ran.notes).not.toContain('secret');
});

test.each([
  ['erase', 'req_x'],
  ['close', '--state', 'dead_lettered', '--why', 'x'],
  ['account', 'release', 'req_x'],
  ['keys', 'revoke', '371b03fdc691'],
])('%s %s in a pod is refused without a name', async (...words) => {
  const stores = { trail: { nameFrom: 'host' } } as CommandStores;
  const ran = await runOn(() => stores, ...words, '--yes');
  expect(ran).toMatchObject({ code: 2, answer: '' });
  expect(ran.notes).toContain('--as is missing');
});

test.each([
  ['close', '--state', 'dead_lettered'],
  ['aside', 'req_x'],
])('%s %s is refused without a reason', async (...words) => {
  const ran = await run(...words, '--yes');
  expect(ran).toMatchObject({ code: 2, answer: '' });
  expect(ran.notes).toContain('--why is missing');
});

test('options are parsed into values, and a group of commands lists its commands', async () => {
  const words = ['--email', ' Jane@Example.com ', '--ein', '12-3456789', '--limit', '7'];
  expect((await run('find', ...words)).values).toEqual({
    email: 'jane@example.com',
    ein: '123456789',
    limit: 7,
  });
  const group = await run('account');
  expect(group).toMatchObject({ code: 2, answer: '' });
  for (const name of ['correct-email', 'release']) expect(group.notes).toContain(`  ${name}`);
});

test('the help names the bounds that count', () => {
  expect(help['find']?.details).toContain(`(${FIND_DEFAULT} unless told otherwise)`);
  expect(help['partner holds']?.details).toContain(`up to ${OPEN_COUNTED}`);
});
