import { expect, test } from '@jest/globals';
import { shareRoom, type StoredKey } from './key-document.ts';

const keysOf = (partnerId: string, count: number, cidrs: readonly string[]): StoredKey[] =>
  Array.from({ length: count }, (_none, index) => ({
    hash: `${partnerId} ${index}`.padEnd(64, '.'),
    partnerId,
    status: 'active',
    terms: { cidrs },
    source: { namespace: 'keys', name: partnerId, uid: 'one' },
    updatedAt: new Date(),
  }));

test('keys with many networks take more of the room of their own partner', () => {
  const cidrs = Array.from({ length: 100 }, (_none, index) => `2001:db8:${index}::/48`);
  const small = keysOf('small', 10, []);
  const { fitting, asked } = shareRoom([...keysOf('long', 5_000, cidrs), ...small]);
  expect(fitting.slice(-10)).toEqual(small);
  expect(fitting.length).toBeLessThan(5_000);
  expect(asked).toBeGreaterThan(1);
});
