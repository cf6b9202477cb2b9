/** What a register keeps through cut-off lines, other keys, full disks and many writers. */
import {
  appendFileSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { folderOfFile } from '../../../test/support/folder.ts';
import { later, systemClock } from '../../platform/process/clock.ts';
import { EMPTY, Register } from './register.ts';

const MANY = 1_000;
const KEY = 'a key of the register, for tests only';
const done = (): Promise<boolean> => Promise.resolve(true);
const left = (): Promise<boolean> => Promise.resolve(false);

const folders = folderOfFile();

function open(folder = mkdtempSync(join(folders, 'register-')), given: string | null = KEY) {
  const key = given ?? undefined;
  const notes: string[] = [];
  const note = (text: string): void => void notes.push(text);
  let entries = 0;
  const clock = { ...systemClock, now: () => later(new Date(), (entries += 1)) };
  const filesOf = () => readdirSync(folder).map((name) => join(folder, name));
  return { folder, notes, filesOf, register: new Register({ folder, key, clock, note }) };
}

test('what was erased is found by its id alone, and what was left is not', async () => {
  const { register, notes, filesOf } = open();
  await register.erasing('erase', 'req_a', done);
  await register.erasing('erase', 'req_b', left);
  await register.erasing('erase body', 'req_c', done);
  await register.erasing('erase', 'req_d', left);
  await register.erasing('erase', 'req_d', done);
  // It may be done.
  const failed = register.erasing('erase', 'req_e', () => Promise.reject(new Error('away')));
  await expect(failed).rejects.toThrow('away');
  expect(notes).toEqual([EMPTY]);
  const { isErased, cut, foreign, files } = await register.read();
  const found = ['a', 'b', 'c', 'd', 'e'].filter((one) => isErased('erase', `req_${one}`));
  expect(found).toEqual(['a', 'd', 'e']);
  expect(isErased('erase body', 'req_c')).toBe(true);
  expect({ cut, foreign, files }).toEqual({ cut: 0, foreign: 0, files: 1 });
  expect(readFileSync(filesOf()[0]!, 'utf8')).not.toContain('req_');
});

test('an entry is on the disk before its order begins, and an order without one does not begin', async () => {
  const { register, filesOf } = open();
  await register.ordering('keys revoke', '371b03fdc691', () => {
    expect(readFileSync(filesOf()[0]!, 'utf8')).toContain('371b03fdc691');
    return done();
  });
  const lost = open('/nowhere/at/all');
  let begun = 0;
  const act = (): Promise<boolean> => Promise.resolve(++begun > 0);
  for (const order of [
    lost.register.erasing('erase', 'req_a', act),
    lost.register.ordering('partner disable', 'acme', act),
  ])
    await expect(order).rejects.toThrow('/nowhere/at/all cannot be read (ENOENT)');
  expect(begun).toBe(0);
  expect(await lost.register.ordering('retry', 'req_a', act)).toBe(true);
  // A folder in which no file can be made.
  const full = open('/proc');
  await expect(full.register.erasing('erase', 'req_a', act)).rejects.toThrow('cannot be written');
});

test('where the register is named without its key, no order begins that it would not note', async () => {
  const { register } = open(undefined, null);
  let begun = 0;
  const act = (): Promise<boolean> => Promise.resolve(++begun > 0);
  for (const order of [
    async () => register.erasing('erase', 'req_a', act),
    async () => register.ordering('keys revoke', '371b03fdc691', act),
    async () => register.isEmpty(),
    async () => register.read(),
  ])
    await expect(order()).rejects.toThrow('run it in a pod of the processor or the console');
  expect(begun).toBe(0);
  expect(await register.ordering('retry', 'req_a', act)).toBe(true);
});

test('of the orders about one subject the last that was done counts', async () => {
  const { register } = open();
  for (const [name, of, act] of [
    ['partner disable', 'acme', done],
    ['partner hold', 'acme', done],
    ['partner enable', 'acme', done],
    ['partner disable', 'beta', done],
    ['partner enable', 'beta', left],
    ['aside', 'req_a', done],
  ] as const) {
    await register.ordering(name, of, act);
  }
  expect((await register.read()).orders).toEqual([
    { name: 'partner hold', of: 'acme' },
    { name: 'partner enable', of: 'acme' },
    { name: 'partner disable', of: 'beta' },
    { name: 'aside', of: 'req_a' },
  ]);
});

test('lines cut off, changed or of another key are counted and left out', async () => {
  const { register, folder, filesOf } = open();
  await register.erasing('erase', 'req_a', done);
  const [path = ''] = filesOf();
  const line = readFileSync(path, 'utf8').trim();
  appendFileSync(
    path,
    [line.replace('"erase"', '"erase body"'), '', 'x'.repeat(1e6), line.slice(0, 40)].join('\n'),
  );
  await open(folder, 'another key of another register, for tests').register.erasing(
    'erase',
    'req_b',
    done,
  );
  writeFileSync(join(folder, 'lost+found'), 'not ours');
  const { isErased, cut, foreign, files } = await register.read();
  expect({ cut, foreign, files }).toEqual({ cut: 1, foreign: 3, files: 2 });
  expect(isErased('erase', 'req_a')).toBe(true);
  expect(isErased('erase body', 'req_a')).toBe(false);
});

test('a line that another append of the process left half written costs no other', async () => {
  const { register, filesOf } = open();
  await register.erasing('erase', 'req_a', done);
  appendFileSync(filesOf()[0]!, '{"at":"2026-11-20T10:00');
  await register.erasing('erase', 'req_b', done);
  const { isErased, cut, foreign } = await register.read();
  expect([isErased('erase', 'req_a'), isErased('erase', 'req_b')]).toEqual([true, true]);
  expect({ cut, foreign }).toEqual({ cut: 1, foreign: 0 });
});

test('a process whose file was deleted goes on, and tells that the register is empty', async () => {
  const { register, notes, filesOf } = open();
  await register.erasing('erase', 'req_a', done);
  rmSync(filesOf()[0]!);
  await register.erasing('erase', 'req_b', done);
  await register.erasing('erase', 'req_c', done);
  expect(notes).toEqual([EMPTY, EMPTY]);
  const { isErased, cut, foreign } = await register.read();
  expect(['req_b', 'req_c'].map((id) => isErased('erase', id))).toEqual([true, true]);
  expect({ cut, foreign }).toEqual({ cut: 0, foreign: 0 });
});

test('processes that write at once lose nothing', async () => {
  const { folder } = open();
  const registers = Array.from({ length: 10 }, () => open(folder).register);
  const ids = Array.from({ length: MANY }, (_, index) => `req_${index}`);
  await Promise.all(ids.map((id, index) => registers[index % 10]!.erasing('erase', id, done)));
  const { isErased, cut, foreign } = await open(folder).register.read();
  expect(cut + foreign).toBe(0);
  expect(ids.filter((id) => !isErased('erase', id))).toEqual([]);
});
