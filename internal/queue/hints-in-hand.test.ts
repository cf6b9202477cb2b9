import { expect, test } from '@jest/globals';
import { HintsInHand, MAX_IN_HAND } from './hints-in-hand.ts';
import type { Hint } from './job.ts';

const hints = (count: number): Hint[] =>
  Array.from({ length: count }, (_, index) => ({ requestId: `req_${index}`, version: 0 }));
const settled = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

/** Each hint is worked on until the test calls `end`. */
function scene(slots: number) {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const work = new HintsInHand({
    slots,
    handle: ({ requestId }) => {
      begun.push(requestId);
      return new Promise((_, reject) => ends.set(requestId, () => reject(new Error('ignored'))));
    },
  });
  const never = new AbortController().signal;
  return { work, begun, never, end: (id: number) => ends.get(`req_${id}`)?.() };
}

test('a pause begins nothing, keeps what is in hand, and leaves no room; resuming goes on', async () => {
  const { work, begun, never, end } = scene(1);
  work.take(hints(2));
  work.pause();
  expect(work.room).toBe(0);
  let free = false;
  void work.whenFree(never).then(() => (free = true));
  end(0);
  await settled();
  expect({ free, begun }).toEqual({ free: false, begun: ['req_0'] });
  work.resume();
  expect(begun).toEqual(['req_0', 'req_1']);
  expect(work.room).toBe(MAX_IN_HAND - 1);
  end(1);
  await settled();
  expect(free).toBe(true);
});
