/** Deadlines, pauses and back-off always end. */
import { expect, test } from '@jest/globals';
import { DeadlineError, JITTER, backoffMs, jittered, pause, withDeadline } from './deadline.ts';

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
  const shape = { firstMs: 100, capMs: 1_000 };
  for (const [index, ms] of [100, 200, 400, 800, 1_000, 1_000].entries()) {
    const waitMs = backoffMs(index + 1, shape);
    expect(Math.abs(waitMs - ms)).toBeLessThanOrEqual(ms * JITTER);
  }
  expect([jittered(100, () => 0), jittered(100, () => 1)]).toEqual([80, 120]);
});
