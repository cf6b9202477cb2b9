/**
 * Every mistake at the command line is one clear line and exit code 2, before any store is opened.
 */
import { expect, test } from '@jest/globals';
import { systemClock as clock } from '../platform/clock.ts';
import type { Output } from './command.ts';
import { runCommand } from './run-command.ts';

async function run(words: readonly string[]) {
  const said = { answer: '', notes: '' };
  const out: Output = {
    line: (text = '') => void (said.answer += `${text}\n`),
    json: (value) => void (said.answer += JSON.stringify(value)),
    jsonLine: (value) => void (said.answer += JSON.stringify(value)),
    note: (text) => void (said.notes += `${text}\n`),
    drained: () => Promise.resolve(),
  };
  const openDesk = (): never => {
    throw new Error('no store is needed to see a mistake');
  };
  const code = await runCommand(words, {
    out,
    keysNamespace: 'keys',
    clock,
    input: async () => '',
    openDesk,
    catchStop: () => new AbortController().signal,
    storeFault: () => '',
  });
  return { code, ...said };
}

const mistakes: [words: string[], line: string][] = [
  [['shwo'], 'unknown command "shwo": did you mean show?; --help lists all'],
  [['req_01arz3ndektsv4rrffq69g5fav'], 'did you mean "show req_01arz3ndektsv4rrffq69g5fav"?'],
  [['account'], '"account" needs one of correct-email, release'],
  [['show'], 'show: REQUEST_ID is missing'],
  [['show', 'a', 'b'], 'show: "b" is one argument too many'],
  [['show', 'a', '--revael'], 'show: unknown option --revael: did you mean --reveal?'],
  [['show', 'a', '-x'], 'show: unknown option -x'],
  [['find'], 'find: give at least one of --email, --ein'],
  [
    ['find', '--limit', '0', '--state', 'completed'],
    'find: --limit must be a whole number from 1 to 1000',
  ],
  [['find', '--limit', '--json'], 'find: --limit needs a value'],
  [['find', '--state', 'dead-lettered'], 'did you mean dead_lettered?'],
  [['find', '--ein', '12345678'], 'find: --ein must be nine digits'],
  [['find', '--since', 'yesterday'], 'find: --since must be like 30m, 24h, 7d or'],
  [['find', '--since', '1h', '--until', '2h'], 'find: --since must be before --until'],
  [['find', '--json=yes', '--state', 'completed'], 'find: --json takes no value'],
  [['find', '--partner', 'a', '--partner', 'b'], 'find: --partner is given twice'],
  [['retry'], 'retry: give a REQUEST_ID, or --state dead_lettered or --state undeliverable'],
  [
    ['retry', '--state', 'completed', '--yes'],
    'retry: give a REQUEST_ID, or --state dead_lettered',
  ],
  [['retry', 'req_x', '--since', '1h'], 'retry: --since does not go with a REQUEST_ID'],
  [
    ['account', 'correct-email', 'req_x', 'not an address'],
    'ADDRESS is not a valid e-mail address',
  ],
  [['erase'], 'erase: give one of REQUEST_ID, --email or --ein'],
  [['erase', 'req_x', '--email', 'a@b.example'], 'erase: give one of REQUEST_ID, --email or --ein'],
  [['keys', 'new', '../etc'], 'keys new: PARTNER must be 1 to 63 letters'],
  [
    ['keys', 'new', 'acme', '--namespace', 'A B'],
    'keys new: --namespace must be the name of a Kubernetes namespace',
  ],
];
test.each(mistakes)('%j fails with 2 and one line', async (words, line) => {
  const { code, answer, notes } = await run(words);
  expect({ code, answer, lines: notes.trimEnd().split('\n').length }).toEqual({
    code: 2,
    answer: '',
    lines: 1,
  });
  expect(notes).toContain(line);
});
