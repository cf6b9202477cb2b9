/** Waits in tests, each with a time-out. */
import { pause } from '../../internal/platform/process/deadline.ts';

/** The pause grows with the time waited, because polling costs other tests processor time. */
const POLL = { share: 0.1, leastMs: 20, mostMs: 250 };

/**
 * The time-out of every wait: ten times the longest on a quiet machine. Tests assert order and
 * counts, not durations.
 */
export const HANG_MS = 60_000;

/** For waits on timers of the service: a claim (45 s), an unclaimed record (30 s). */
export const HEAL_HANG_MS = 6 * HANG_MS;

/** Jest's time-out is longer than those of waits, which say what they waited for. */
export const TEST_HANG_MS = 2 * HEAL_HANG_MS;

/**
 * Resolves with the first value of `look` that is not undefined or false; rejects after
 * `timeoutMs`.
 */
export async function eventually<T>(
  what: string,
  look: () => T | undefined | false | Promise<T | undefined | false>,
  timeoutMs = HANG_MS,
): Promise<T> {
  const begin = performance.now();
  let lastError: unknown;
  for (;;) {
    try {
      const value = await look();
      if (value !== undefined && value !== false) return value;
    } catch (error) {
      lastError = error;
    }
    const waited = performance.now() - begin;
    if (waited > timeoutMs) {
      throw new Error(`waited ${timeoutMs} ms in vain for: ${what}`, { cause: lastError });
    }
    await pause(Math.min(POLL.mostMs, Math.max(POLL.leastMs, waited * POLL.share)));
  }
}
