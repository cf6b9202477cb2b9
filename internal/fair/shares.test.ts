/** Chooses what to remove when a shared bound is reached. */
import { expect, test } from '@jest/globals';
import { FairShares, type Owner } from './shares.ts';

const a1: Owner = ['a', '1'];
const a2: Owner = ['a', '2'];
const b1: Owner = ['b', '1'];

function newShares(max: number, stays: readonly string[] = []) {
  const gaveWay: string[] = [];
  const mayGiveWay = (name: string): boolean => !stays.includes(name);
  return { gaveWay, shares: new FairShares<string>(max, (name) => gaveWay.push(name), mayGiveWay) };
}

test('when full, the oldest entry of the largest address of the largest owner is removed', () => {
  const { gaveWay, shares } = newShares(100);
  shares.hold('old', a2, 20);
  shares.hold('first', a1, 30);
  shares.hold('second', a1, 50);
  expect(gaveWay).toEqual([]);
  shares.hold('first', a1, 31);
  expect(gaveWay).toEqual(['first']);
  shares.hold('other', b1, 30);
  shares.hold('other', b1, 60);
  expect(gaveWay).toEqual(['first', 'second']);
  // The largest owner is now b.
  shares.hold('late', a1, 30);
  expect(gaveWay).toEqual(['first', 'second', 'other']);
});

test('released room is free once, and an entry that changes its owner counts for the new one', () => {
  const { gaveWay, shares } = newShares(3);
  shares.hold('one', a1);
  shares.hold('two', a1);
  shares.remove('one');
  shares.remove('one');
  shares.hold('two', b1);
  shares.hold('three', b1);
  shares.hold('four', a1);
  expect(gaveWay).toEqual([]);
  shares.hold('five', a2);
  expect(gaveWay).toEqual(['two']);
  expect([...shares.holders]).toEqual(['three', 'four', 'five']);
});

test('with `newest`, equal shares keep their places, and only a smaller one gets one', () => {
  const gaveWay: string[] = [];
  const gives = (name: string) => gaveWay.push(name);
  const shares = new FairShares<string>(3, gives, undefined, 'newest');
  for (const name of ['a1', 'a2', 'a3', 'a4']) shares.hold(name, a1);
  shares.hold('a5', a2);
  expect(gaveWay).toEqual(['a4', 'a3']);
  shares.hold('b1', b1);
  expect(gaveWay).toEqual(['a4', 'a3', 'a2']);
  for (const name of ['b2', 'a6', 'c', 'd']) shares.hold(name, [name[0]!, '1']);
  expect([...shares.holders]).toEqual(['a1', 'b1', 'c']);
  expect(shares.has('d')).toBe(false);
});

test('the newest is refused if no entry of the largest may be removed', () => {
  const { gaveWay, shares } = newShares(2, ['one', 'two']);
  for (const name of ['one', 'two', 'three']) shares.hold(name, a1);
  expect(gaveWay).toEqual(['three']);
});

test('where none of the largest address may be removed, another of the same owner is', () => {
  const { gaveWay, shares } = newShares(3, ['one', 'two']);
  shares.hold('one', a1);
  shares.hold('two', a1);
  shares.hold('three', a2);
  shares.hold('four', b1);
  expect(gaveWay).toEqual(['three']);
});
