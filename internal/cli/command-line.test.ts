import { expect, test } from '@jest/globals';
import { commands } from './commands.ts';
import { parseLine } from './command-line.ts';
import { utc } from './timeline.ts';

const now = new Date('2026-11-25T12:00:00Z');
const since = (value: string): Date | undefined =>
  parseLine(['find', '--state', 'completed', '--since', value], commands, now).values.since;

test.each([
  ['24h', '2026-11-24T12:00:00.000Z'],
  ['2026-11-21', '2026-11-21T00:00:00.000Z'],
  ['2026-11-21T09:03', '2026-11-21T09:03:00.000Z'],
  ['2026-11-21 09:03:11.120', '2026-11-21T09:03:11.120Z'],
  ['2026-11-21T09:03:11+02:00', '2026-11-21T07:03:11.000Z'],
  ['2028-02-29', '2028-02-29T00:00:00.000Z'],
])('--since %s is %s, in UTC unless it says otherwise', (value, expected) => {
  expect(since(value)?.toISOString()).toBe(expected);
});

test('--since takes a time as find prints it', () => {
  expect(since(utc(now))).toEqual(now);
});

test.each([
  '2026-02-30',
  '2026-13-01',
  '2026-11-21T25:00',
  '2026-11-21 noon',
  '2026-11-31T00:00Z',
  '21.11.2026',
])('--since %s is refused', (value) => {
  expect(() => since(value)).toThrow('--since must be like');
});
