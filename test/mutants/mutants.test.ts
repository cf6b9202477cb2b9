/** The list of mutants fits the code: whoever moves a line it names is told here, not by `make mutants` days later. */
import { expect, test } from '@jest/globals';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { mutants } from './list.ts';
import { draw, mutated, roomOf } from './mutant.ts';
import { ROOT } from './root.ts';

const AT_LEAST = 80;

test.each(mutants)('$file: $find', (mutant) => {
  const file = join(ROOT, mutant.file);
  const text = existsSync(file) ? mutated(readFileSync(file, 'utf8'), mutant) : 'there is no such file';
  expect(text).toEqual(expect.any(String));
  // A file that cannot be read at all turns every test red.
  if (file.endsWith('.ts')) stripTypeScriptTypes(text ?? '');
  expect(mutant.replace).not.toBe(mutant.find);
  expect(mutant.tests.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  expect(mutant.tests).not.toEqual([]);
});

test('there are many, no two the same, and some from every room', () => {
  expect(mutants.length).toBeGreaterThanOrEqual(AT_LEAST);
  expect(new Set(mutants.map(({ file, find, replace }) => `${file}\0${find}\0${replace}`)).size).toBe(mutants.length);
  const rooms = [...readdirSync(join(ROOT, 'internal')), 'cmd', 'chart', 'alerts'];
  expect([...new Set(mutants.map(roomOf))].toSorted()).toEqual(rooms.toSorted());
});

test('a commit always draws the same ones, and another commit others', () => {
  const [one, again, other] = ['a', 'a', 'b'].map((seed) => draw(mutants, seed, 10));
  expect(one).toHaveLength(10);
  expect(again).toEqual(one);
  expect(other).not.toEqual(one);
  expect(draw(mutants.toReversed(), 'a', 10)).toEqual(one);
});
