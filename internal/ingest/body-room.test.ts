/** Which bodies keep their room and which are dropped. */
import { expect, test } from '@jest/globals';
import { BodyRoom, type RoomHolder } from './body-room.ts';

/** Holders that record the order in which they were dropped. */
function holders(...names: string[]): { readonly gaveWay: string[]; readonly all: RoomHolder[] } {
  const gaveWay: string[] = [];
  return { gaveWay, all: names.map((name) => ({ giveWay: () => void gaveWay.push(name) })) };
}

test('up to the bound all keep theirs; beyond it the oldest give way, as many as it takes', () => {
  const { gaveWay, all } = holders('a', 'b', 'c', 'd');
  const [a, b, c, d] = all as [RoomHolder, RoomHolder, RoomHolder, RoomHolder];
  const room = new BodyRoom(100);
  room.resize(a, 40);
  room.resize(b, 20);
  room.resize(c, 40);
  expect(gaveWay).toEqual([]);
  room.resize(d, 50);
  expect(gaveWay).toEqual(['a', 'b']);
  // A dropped body holds nothing, so 90 are taken now.
  room.resize(d, 60);
  expect(gaveWay).toEqual(['a', 'b']);
});

test('age counts from the first bytes, not from the latest', () => {
  const { gaveWay, all } = holders('slow', 'quick');
  const [slow, quick] = all as [RoomHolder, RoomHolder];
  const room = new BodyRoom(100);
  room.resize(slow, 1);
  room.resize(quick, 60);
  room.resize(slow, 50);
  expect(gaveWay).toEqual(['slow']);
});

test('what was released is room for others, once', () => {
  const { gaveWay, all } = holders('a', 'b');
  const [a, b] = all as [RoomHolder, RoomHolder];
  const room = new BodyRoom(100);
  room.resize(a, 100);
  room.release(a);
  room.release(a);
  room.resize(b, 100);
  expect(gaveWay).toEqual([]);
  room.resize(a, 1);
  expect(gaveWay).toEqual(['b']);
});
