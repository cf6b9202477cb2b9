/** What the check of the path says. */
import { expect, test } from '@jest/globals';
import { longerThan, readRecorded, summaryOf } from './recorded.ts';
import type { Call } from './measure.ts';

const calls = (file: string, names: number, each: number): Call[] =>
  Array.from({ length: names }, (_, line) => ({ name: `f${line}`, file, line, calls: each }));
const before = { ingest: calls('a.ts', 10, 4), processor: calls('b.ts', 10, 6) };

test('a path within the reserve passes', () => {
  expect(longerThan(summaryOf(before), before)).toEqual([]);
  const other = { ...before, processor: [...before.processor, ...calls('c.ts', 5, 4)] };
  expect(longerThan(summaryOf(before), other)).toEqual([]);
});

test('a longer path fails with what grew', () => {
  const longer = {
    ingest: calls('a.ts', 10, 6),
    processor: [...before.processor, ...calls('c.ts', 6, 1)],
  };
  expect(longerThan(summaryOf(before), longer)).toEqual([
    'the path of a POST has 26 functions, at most 25 (if meant: make path RECORD=1)',
    'the path of a POST has 126 calls, at most 120 (if meant: make path RECORD=1)',
    'a.ts: 10 functions, 60 calls (recorded: 10 functions, 40 calls)',
    'c.ts: 6 functions, 6 calls (recorded: 0 functions, 0 calls)',
  ]);
});

test('the recorded sums are those of the recorded files', () => {
  const { files, functions, calls: all, byFile } = readRecorded();
  const each = Object.values(byFile);
  expect(each.length).toBe(files);
  expect(each.reduce((sum, [one]) => sum + one, 0)).toBe(functions);
  expect(each.reduce((sum, [, one]) => sum + one, 0)).toBe(all);
});
