/** Test files that lack a need are left out. */
import { expect, test } from '@jest/globals';
import { leftOutFiles, needs, testFiles } from './needs.ts';

test('every need belongs to a file, and only files that lack one are left out', () => {
  const all = testFiles();
  expect(new Set(all.flatMap((file) => file.needs))).toEqual(new Set(needs));
  expect(leftOutFiles({})).toEqual([]);
  const nothing = Object.fromEntries(needs.map((need) => [need, 'not here']));
  const leftOut = new Set(leftOutFiles(nothing).map(({ path }) => path));
  expect(all.filter(({ path }) => !leftOut.has(path))).toEqual(
    all.filter((file) => file.needs.length === 0),
  );
});
