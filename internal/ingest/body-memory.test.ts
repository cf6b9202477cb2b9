/** Which bodies keep their memory and which are dropped. */
import { expect, test } from '@jest/globals';
import { BodyMemory, type MemoryHolder } from './body-memory.ts';

/** Holders that record the order in which they were dropped. */
function holders(...names: string[]): { readonly gaveWay: string[]; readonly all: MemoryHolder[] } {
  const gaveWay: string[] = [];
  return { gaveWay, all: names.map((name) => ({ giveWay: () => void gaveWay.push(name) })) };
}

test('up to the bound all keep theirs; beyond it the oldest give way, as many as it takes', () => {
  const { gaveWay, all } = holders('a', 'b', 'c', 'd');
  const [a, b, c, d] = all as [MemoryHolder, MemoryHolder, MemoryHolder, MemoryHolder];
  const memory = new BodyMemory(100);
  memory.resize(a, 40);
  memory.resize(b, 20);
  memory.resize(c, 40);
  expect(gaveWay).toEqual([]);
  memory.resize(d, 50);
  expect(gaveWay).toEqual(['a', 'b']);
  // A dropped body holds nothing, so 90 are taken now.
  memory.resize(d, 60);
  expect(gaveWay).toEqual(['a', 'b']);
});

test('what was released is memory for others, once', () => {
  const { gaveWay, all } = holders('a', 'b');
  const [a, b] = all as [MemoryHolder, MemoryHolder];
  const memory = new BodyMemory(100);
  memory.resize(a, 100);
  memory.release(a);
  memory.release(a);
  memory.resize(b, 100);
  expect(gaveWay).toEqual([]);
  memory.resize(a, 1);
  expect(gaveWay).toEqual(['b']);
});
