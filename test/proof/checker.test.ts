/** Gives the checker histories with one broken promise each, and without. */
import { expect, test } from '@jest/globals';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { folderOfFile } from '../support/folder.ts';
import { checkHistory } from './checker.ts';

type Line = readonly [type: string, process: string, f: string, value: object];

const sent = (n: number, body: string, key?: string): Line => [
  'invoke',
  String(n),
  'submit',
  { n, sha256: body, ...(key === undefined ? {} : { idempotencyKey: key }) },
];
const ok = (n: number, id: string): Line => ['ok', String(n), 'submit', { n, status: 202, id }];
const failed = (n: number, status: number): Line => ['fail', String(n), 'submit', { n, status }];
const cut = (n: number): Line => ['info', String(n), 'submit', { n }];
const saw = (id: string, state?: string): Line[] => [
  ['invoke', `look-up ${id}`, 'look-up', { id }],
  ['ok', `look-up ${id}`, 'look-up', state ? { id, status: 200, state } : { id, status: 404 }],
];
const read = (...records: object[]): Line => ['ok', 'reader', 'read', { records }];
const stored = (n: number, sha256: string, state = 'completed'): object => ({
  id: `req_${n}`,
  n,
  state,
  sha256,
});

const folder = folderOfFile();

async function verdictOf(lines: readonly Line[]): Promise<string[]> {
  const file = join(folder, 'history.jsonl');
  const text = lines.map(([type, process, f, value], index) =>
    JSON.stringify({ index, type, process, f, time: index, value }),
  );
  await writeFile(file, text.join('\n'));
  const { violations } = await checkHistory(file);
  return violations.map(({ model, partition }) => `${model}: ${partition}`);
}

const A = 'a'.repeat(64);
const B = 'b'.repeat(64);
const adopted = { ...stored(1, A), adopted: true };

test.each<[why: string, lines: Line[]]>([
  ['an accepted request is there', [sent(1, A), ok(1, 'req_1'), read(stored(1, A))]],
  [
    'what was answered 500 is withdrawn',
    [sent(1, A), failed(1, 500), read(stored(1, A, 'withdrawn'))],
  ],
  [
    'what had no answer is there',
    [sent(1, A), ['info', 'nemesis', 'power-cut', {}], cut(1), read(stored(1, A))],
  ],
  ['what had no answer is not there', [sent(1, A), cut(1), read()]],
  [
    'a repeat of a key gets the first answer, which did not come',
    [sent(1, A, 'k'), cut(1), sent(2, A, 'k'), ok(2, 'req_1'), read(stored(1, A))],
  ],
  [
    'a repeat gets the record of what was answered 500',
    [sent(1, A, 'k'), sent(2, A, 'k'), failed(1, 500), ok(2, 'req_1'), read(stored(1, A))],
  ],
  [
    'a repeat without an answer gets the record of what was answered 500',
    [sent(1, A, 'k'), failed(1, 500), sent(2, A, 'k'), cut(2), read(adopted)],
  ],
  [
    'of two bodies at once one is refused',
    [sent(1, A, 'k'), sent(2, B, 'k'), failed(1, 422), ok(2, 'req_2'), read(stored(2, B))],
  ],
  [
    'another body waits until what was answered 500 is withdrawn',
    [
      sent(1, A, 'k'),
      failed(1, 500),
      sent(2, B, 'k'),
      failed(2, 422),
      sent(3, B, 'k'),
      ok(3, 'req_3'),
      read(stored(1, A, 'withdrawn'), stored(3, B)),
    ],
  ],
  [
    'a look-up goes on',
    [
      sent(1, A),
      ok(1, 'req_1'),
      ...saw('req_1', 'processing'),
      ...saw('req_1', 'completed'),
      read(stored(1, A, 'undeliverable')),
    ],
  ],
])('nothing is found: %s', async (_why, lines) => {
  expect(await verdictOf(lines)).toEqual([]);
});

test.each<[why: string, found: string[], lines: Line[]]>([
  ['an accepted request is gone', ['accept: request 1'], [sent(1, A), ok(1, 'req_1'), read()]],
  ['its body is another', ['accept: request 1'], [sent(1, A), ok(1, 'req_1'), read(stored(1, B))]],
  [
    'an accepted request is withdrawn',
    ['accept: request 1'],
    [sent(1, A), ok(1, 'req_1'), read(stored(1, A, 'withdrawn'))],
  ],
  [
    'what was answered 500 is processed',
    ['accept: request 1'],
    [sent(1, A), failed(1, 500), read(stored(1, A))],
  ],
  [
    'what was answered 500 is processed for a repeat that was answered 500, too',
    ['accept: request 1', 'idempotency key: k'],
    [sent(1, A, 'k'), failed(1, 500), sent(2, A, 'k'), failed(2, 500), read(adopted)],
  ],
  [
    'what was answered 500 is processed, although no repeat got its record',
    ['accept: request 1'],
    [sent(1, A, 'k'), failed(1, 500), sent(2, A, 'k'), cut(2), read(stored(1, A))],
  ],
  [
    'what was answered 401 is processed',
    ['accept: request 1'],
    [sent(1, A), failed(1, 401), read(stored(1, A))],
  ],
  [
    'a key has two requests',
    ['idempotency key: k'],
    [
      sent(1, A, 'k'),
      ok(1, 'req_1'),
      sent(2, A, 'k'),
      ok(2, 'req_2'),
      read(stored(1, A), stored(2, A)),
    ],
  ],
  [
    'a key is refused for the body that bound it',
    ['idempotency key: k'],
    [sent(1, A, 'k'), ok(1, 'req_1'), sent(2, A, 'k'), failed(2, 422), read(stored(1, A))],
  ],
  [
    'a key is refused that no other body has used',
    ['idempotency key: k'],
    [sent(1, A, 'k'), failed(1, 422), sent(2, A, 'k'), ok(2, 'req_2'), read(stored(2, A))],
  ],
  [
    'a key takes a second body',
    ['accept: request 2', 'idempotency key: k'],
    [sent(1, A, 'k'), ok(1, 'req_1'), sent(2, B, 'k'), ok(2, 'req_1'), read(stored(1, A))],
  ],
  [
    'an accepted request is not found',
    ['look-up: req_1'],
    [sent(1, A), ok(1, 'req_1'), ...saw('req_1'), read(stored(1, A))],
  ],
  [
    'an end changes',
    ['look-up: req_1'],
    [sent(1, A), ok(1, 'req_1'), ...saw('req_1', 'rejected'), read(stored(1, A))],
  ],
  [
    'an end is taken back',
    ['look-up: req_1'],
    [
      sent(1, A),
      ok(1, 'req_1'),
      ...saw('req_1', 'completed'),
      ...saw('req_1', 'processing'),
      read(stored(1, A)),
    ],
  ],
])('it is found: %s', async (_why, found, lines) => {
  expect(await verdictOf(lines)).toEqual(found);
});

test('a history without a final read, or cut off in a line, is not judged', async () => {
  await expect(verdictOf([sent(1, A), ok(1, 'req_1')])).rejects.toThrow('no final read');
  const file = join(folder, 'cut.jsonl');
  await writeFile(file, '{"index":0,"type":"inv');
  await expect(checkHistory(file)).rejects.toThrow('line');
});
