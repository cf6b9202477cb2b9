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

test('ids made before a time come before its first id, later ones after it', () => {
  const id = newId('req');
  const made = timeOfId(id) ?? new Date(0);
  expect(firstIdAt('req', made) <= id).toBe(true);
  expect(firstIdAt('req', new Date(made.getTime() + 1)) > id).toBe(true);
});

test.each(['', 'req_', 'req_short', 'nonsense', 'req_!!!!!!!!!!!!!!!!!!!!!!!!!!'])(
  '%j has no time',
  (id) => {
    expect(timeOfId(id)).toBeUndefined();
  },
);

test('ids come in the order in which they were made, also many within a millisecond, and are different', () => {
  const ids = Array.from({ length: 20_000 }, () => newId('req'));
  expect(ids.toSorted()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
  expect(new Set(ids.map((id) => id.slice(-12))).size).toBe(ids.length);
});
