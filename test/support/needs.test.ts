/** Test files that lack a need are left out. */
import { expect, test } from '@jest/globals';
import { leftOutFiles, needs, needsOf, testFiles } from './needs.ts';

/** Assembled here, so that this file itself needs nothing. */
const imports = (file: string): string => `from '../support/${file}.ts'`;

test.each([
  ['test/integration/a.test.ts', '', ['MongoDB and Redis']],
  ['test/kubernetes/a.test.ts', imports('keys-world'), ['MongoDB and Redis', 'Helm', 'API server']],
  ['internal/queue/job.test.ts', "from './job.ts'", []],
])('a test at %s with the text %j needs what these show', (path, text, expected) => {
  expect(needsOf(path, text)).toEqual(expected);
});

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
