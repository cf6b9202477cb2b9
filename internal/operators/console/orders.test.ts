/** What a person is told of an order is true, however slow the stores are. */
import { expect, test } from '@jest/globals';
import { inTime } from './orders.ts';

test.each([[false], [true]])('after its time, with the work begun: %s', async (hasBegun) => {
  const slow = Promise.withResolvers<undefined>();
  const done: string[] = [];
  const work = async (begin: () => void): Promise<void> => {
    if (hasBegun) begin();
    await slow.promise;
    if (!hasBegun) begin();
    done.push('changed');
  };
  let ended = Promise.resolve();
  const told = await inTime(1, (begin) => (ended = work(begin)));
  expect(told).toMatchObject({ hasBegun });
  slow.resolve(undefined);
  await ended.catch(() => undefined);
  // "Nothing was changed" stays true.
  expect(done).toEqual(hasBegun ? ['changed'] : []);
});
