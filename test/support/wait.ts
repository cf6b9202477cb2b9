/** Waiting in tests: poll with a deadline, and say what was last seen when it passes. */
import { pause } from '../../internal/platform/deadline.ts';

/**
 * The next look comes after this share of the time waited, within these bounds: looks cost the
 * other test files processor time.
 */
const POLL = { share: 0.1, leastMs: 20, mostMs: 250 };

/**
 * The bound of every wait in tests: about ten times what the longest of them takes on a quiet
 * machine. It only catches what hangs. No test asserts a duration: it asserts the order of events
 * or a count, and prints the figure.
 */
export const HANG_MS = 60_000;

/**
 * The same for what waits for timers of the service: a claim that runs out (45 s), a record nobody
 * came to (30 s).
 */
export const HEAL_HANG_MS = 6 * HANG_MS;

/** Jest's bound of a test: longer than its waits, because a wait says what it waited for. */
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
