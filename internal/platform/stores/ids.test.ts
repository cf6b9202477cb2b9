/** Ids and times convert into each other. */
import { expect, test } from '@jest/globals';
import { firstIdAt, newId, timeOfId } from './ids.ts';

test('an id holds its time to the millisecond', () => {
  const date = new Date('2026-11-21T09:10:11.123Z');
  expect(timeOfId(newId('req', date))).toEqual(date);
  expect(timeOfId(firstIdAt('req', date))).toEqual(date);
});

test('ids are unique and sort in the order in which they were made', () => {
  const ids = Array.from({ length: 20_000 }, (_none, index) =>
    newId('req', new Date(40_000 + index / 1e5)),
  );
  expect(ids.toSorted()).toEqual(ids);
  expect(new Set(ids).size).toBe(ids.length);
  expect(new Set(ids.map((id) => id.slice(-12))).size).toBe(ids.length);
});
