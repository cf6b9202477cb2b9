/** However many reads a partner has waiting, another's waits for a few of them. */
import { expect, test } from '@jest/globals';
import { FairReads } from './fair-reads.ts';

test('waiting reads are served partner by partner', async () => {
  const served: string[] = [];
  const gate = Promise.withResolvers<void>();
  const reads = new FairReads<string, string>({
    max: 16,
    together: 1,
    query: async ([item = '']) => {
      served.push(item);
      await gate.promise;
      return [item];
    },
  });
  const asked = ['a1', 'a2', 'a3', 'a4', 'a5', 'b1'].map((item) =>
    reads.read(item, [item.slice(0, 1), ''], new AbortController().signal),
  );
  gate.resolve();
  await Promise.all(asked);
  expect(served.indexOf('b1')).toBeLessThan(4);
});

test('nothing is read for a client that has left', async () => {
  const reads = new FairReads<string, string>({
    max: 16,
    together: 1,
    query: () => Promise.reject(new Error('read all the same')),
  });
  await expect(reads.read('a', ['a', ''], AbortSignal.abort())).rejects.toThrow('has left');
});
