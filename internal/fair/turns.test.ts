import { expect, test } from '@jest/globals';
import { Turns } from './turns.ts';

/** Items are named by their owner. */
function turnsOf(...items: readonly string[]): Turns<string> {
  const turns = new Turns<string>({ sizeOf: (item) => (item.startsWith('b') ? 10 : 1) });
  for (const item of items) turns.put(item.slice(0, 1), item);
  return turns;
}
const upTo = (count: number) => () => (count -= 1) >= 0;

test('owners take turns, and the last to be served is the last of the next', () => {
  const turns = turnsOf('a1', 'a2', 'a3', 'b1', 'c1', 'c2');
  expect(turns.take(upTo(2))).toEqual(['a1', 'b1']);
  expect(turns.take(upTo(2))).toEqual(['c1', 'a2']);
  turns.put('b', 'b2');
  expect(turns.takeOf('c')).toBe('c2');
  expect(turns.take(upTo(9))).toEqual(['a3', 'b2']);
  expect([turns.count, turns.size, turns.takeOf('a')]).toEqual([0, 0, undefined]);
});

test('what may not go stays first with its owner, and keeps nobody from a turn', () => {
  const turns = turnsOf('a1', 'a2', 'b1');
  expect(turns.take(upTo(9), (item) => item !== 'a1' && item !== 'b1')).toEqual(['a2']);
  expect(turns.take(upTo(9)).toSorted()).toEqual(['a1', 'b1']);
});

test('the last of the owner with most gives way, by number or by size', () => {
  const turns = turnsOf('a1', 'a2', 'a3', 'b1', 'b2');
  expect(turns.giveWay()).toBe('a3');
  expect(turns.giveWay('size')).toBe('b2');
  expect([turns.count, turns.size]).toEqual([3, 12]);
  expect(turns.shed((item) => item.endsWith('1'))).toEqual(['a1', 'b1']);
  turns.remove('a', 'a2');
  turns.remove('a', 'a2');
  expect([turns.count, turns.giveWay()]).toEqual([0, undefined]);
});

test('an owner has its items in order, those of one rank as they came', () => {
  const turns = new Turns<number>({
    mayFollow: (later, earlier) => Math.trunc(earlier) <= Math.trunc(later),
  });
  for (const item of [2, 1.2, 1.1, 3]) turns.put('a', item);
  expect(turns.take(() => true)).toEqual([1.2, 1.1, 2, 3]);
});
