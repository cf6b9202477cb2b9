import { expect, test } from '@jest/globals';
import { Batcher, type Outcome } from './batcher.ts';

test('each call has its own outcome; a batch that fails fails its calls only, and frees its slot', async () => {
  // The test ends each batch itself.
  const batches: { end(outcomes: Outcome<string>[]): void; fail(error: Error): void }[] = [];
  const batcher = new Batcher<number, string>(
    () => new Promise((end, fail) => batches.push({ end, fail })),
    { maxItems: 2, maxInFlight: 2 },
  );
  const turn = (): Promise<unknown> => new Promise(setImmediate);
  const call = (item: number) => batcher.call(item).catch((error: Error) => error.message);
  const calls = [1, 2, 3, 4].map(call);
  await turn();
  expect(batches).toHaveLength(2);
  batches[0]!.end([{ error: new Error('not 1') }, { result: 'did 2' }]);
  batches[1]!.fail(new Error('all of it'));
  expect(await Promise.all(calls)).toEqual(['not 1', 'did 2', 'all of it', 'all of it']);
  const more = call(5);
  await turn();
  batches[2]!.end([]);
  expect(await more).toBe('a batch left a call without an outcome');
});
