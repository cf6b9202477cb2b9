import { expect, test } from '@jest/globals';
import { Batcher, type Outcome } from './batcher.ts';

/** The test ends each batch itself. */
function controlled(limits: { maxItems: number; maxInFlight: number }) {
  const batches: {
    items: readonly number[];
    end(outcomes: Outcome<string>[]): void;
    fail(error: Error): void;
  }[] = [];
  const batcher = new Batcher<number, string>(
    (items) => new Promise((end, fail) => batches.push({ items, end, fail })),
    limits,
  );
  return { batcher, batches, turn: () => new Promise(setImmediate) };
}
const said = (items: readonly number[]): Outcome<string>[] =>
  items.map((item) => ({ result: `did ${item}` }));

test('calls of one turn share a batch, and what comes while the slots are busy forms the next ones', async () => {
  const { batcher, batches, turn } = controlled({ maxItems: 3, maxInFlight: 1 });
  const first = [1, 2].map((item) => batcher.call(item));
  await turn();
  const later = [3, 4, 5, 6].map((item) => batcher.call(item));
  await turn();
  expect(batches.map(({ items }) => items)).toEqual([[1, 2]]);
  batches[0]!.end(said([1, 2]));
  expect(await Promise.all(first)).toEqual(['did 1', 'did 2']);
  await turn();
  batches[1]!.end(said([3, 4, 5]));
  await turn();
  batches[2]!.end(said([6]));
  expect(await Promise.all(later)).toEqual(['did 3', 'did 4', 'did 5', 'did 6']);
  expect(batches.map(({ items }) => items)).toEqual([[1, 2], [3, 4, 5], [6]]);
});

test('each call has its own outcome; a batch that fails fails its calls only, and frees its slot', async () => {
  const { batcher, batches, turn } = controlled({ maxItems: 2, maxInFlight: 2 });
  const calls = [1, 2, 3, 4].map((item) =>
    batcher.call(item).catch((error: Error) => error.message),
  );
  await turn();
  expect(batches).toHaveLength(2);
  batches[0]!.end([{ error: new Error('not 1') }, { result: 'did 2' }]);
  batches[1]!.fail(new Error('all of it'));
  expect(await Promise.all(calls)).toEqual(['not 1', 'did 2', 'all of it', 'all of it']);
  const more = batcher.call(5).catch((error: Error) => error.message);
  await turn();
  batches[2]!.end([]);
  expect(await more).toBe('a batch left a call without an outcome');
});
