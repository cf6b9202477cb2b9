/** Shares the room for keys among partners. */
import { expect, test } from '@jest/globals';
import { KEYS_MAX, shareRoom, type StoredKey } from './key-document.ts';

const keysOf = (partnerId: string, count: number, cidrs: readonly string[] = []): StoredKey[] =>
  Array.from({ length: count }, (_none, index) => ({
    hash: `${partnerId} ${index}`.padEnd(64, '.'),
    partnerId,
    status: 'active',
    terms: cidrs.length === 0 ? {} : { cidrs },
    source: { namespace: 'keys', name: partnerId, uid: 'one' },
    updatedAt: new Date(),
  }));
const countsOf = (keys: readonly StoredKey[]) =>
  Object.fromEntries(
    [...Map.groupBy(keys, ({ partnerId }) => partnerId)].map(([name, { length }]) => [
      name,
      length,
    ]),
  );

test('one partner may use all of the room until others need their share', () => {
  const alone = shareRoom(keysOf('big', KEYS_MAX));
  expect([alone.over, alone.asked]).toEqual([[], 1]);
  const { fitting, over } = shareRoom([
    ...keysOf('big', KEYS_MAX),
    ...keysOf('bigger', KEYS_MAX + 1),
    ...keysOf('small', 10),
  ]);
  expect(countsOf(fitting)).toEqual({ big: 4_995, bigger: 4_995, small: 10 });
  expect(new Set(over.map(({ partnerId }) => partnerId))).toEqual(new Set(['big', 'bigger']));
  expect(fitting.find(({ partnerId }) => partnerId === 'big')?.hash).toMatch(/^big 0\./);
});

test('keys with many networks take more of the room of their own partner', () => {
  const cidrs = Array.from({ length: 100 }, (_none, index) => `2001:db8:${index}::/48`);
  const { fitting, asked } = shareRoom([...keysOf('long', 5_000, cidrs), ...keysOf('small', 10)]);
  const counts = countsOf(fitting);
  expect(counts['small']).toBe(10);
  expect(counts['long']).toBeLessThan(5_000);
  expect(asked).toBeGreaterThan(1);
});
