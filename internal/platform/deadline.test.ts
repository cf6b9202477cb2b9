/** Deadlines, pauses and back-off always end. */
import { expect, test } from '@jest/globals';
import { DeadlineError, backoffMs, pause, withDeadline } from './deadline.ts';

test('a deadline rejects what takes too long, and passes on other results', async () => {
  await expect(withDeadline(new Promise(() => {}), 5, 'this')).rejects.toThrow(
    new DeadlineError('this took longer than 5 ms'),
  );
  await expect(withDeadline(Promise.resolve(7), 5_000, 'this')).resolves.toBe(7);
  await expect(withDeadline(Promise.reject(new RangeError('own')), 5_000, 'this')).rejects.toThrow(
    RangeError,
  );
});

test('a pause ends at once when it is aborted', async () => {
  const stop = new AbortController();
  const pausing = pause(3_600_000, stop.signal);
  stop.abort();
  await pausing;
  await pause(3_600_000, stop.signal);
});

test('back-off doubles up to its cap, within its jitter', () => {
  const shape = { firstMs: 100, capMs: 1_000, jitter: 0.2 };
  const middle = (): number => 0.5;
  expect([1, 2, 3, 4, 5, 50].map((attempt) => backoffMs(attempt, shape, middle))).toEqual([
    100, 200, 400, 800, 1000, 1000,
  ]);
  expect(backoffMs(1, shape, () => 0)).toBe(80);
  expect(backoffMs(1, shape, () => 1)).toBe(120);
});
