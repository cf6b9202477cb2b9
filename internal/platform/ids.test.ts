/** Ids and times convert into each other. */
import { expect, test } from '@jest/globals';
import { firstIdAt, newId, timeOfId } from './ids.ts';

test('the time of an id, to the millisecond', () => {
  const before = Date.now();
  const made = timeOfId(newId('req'))?.getTime() ?? 0;
  expect(made).toBeGreaterThanOrEqual(before);
  expect(made).toBeLessThanOrEqual(Date.now());
  const date = new Date('2026-11-21T09:10:11.123Z');
  expect(timeOfId(firstIdAt('req', date))).toEqual(date);
});

test('ids come in the order in which they were made, also many within a millisecond, and are different', () => {
  const ids = Array.from({ length: 20_000 }, () => newId('req'));
  expect(ids.toSorted()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
  expect(new Set(ids.map((id) => id.slice(-12))).size).toBe(ids.length);
});
