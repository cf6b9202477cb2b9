import { expect, test } from '@jest/globals';
import { Slots } from './slots.ts';

test('no more tasks run at once than there are slots, all run, in order, and a failed one frees its slot', async () => {
  const slots = new Slots(3);
  const started: number[] = [];
  let running = 0;
  let most = 0;
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, index) =>
      slots.run(async () => {
        started.push(index);
        running += 1;
        most = Math.max(most, running);
        await new Promise(setImmediate);
        running -= 1;
        if (index % 4 === 0) throw new Error(`task ${index}`);
        return index;
      }),
    ),
  );
  expect(most).toBe(3);
  expect(started).toEqual(Array.from({ length: 20 }, (_, index) => index));
  expect(results.filter((result) => result.status === 'rejected')).toHaveLength(5);
  expect(await slots.run(() => Promise.resolve('free'))).toBe('free');
});
