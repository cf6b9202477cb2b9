/** Waiting in tests: poll with a deadline, and say what was last seen when it passes. */

const POLL_MS = 20;

/** Resolves with the first value of `look` that is not undefined or false; rejects after `timeoutMs`. */
export async function eventually<T>(
  what: string,
  look: () => T | undefined | false | Promise<T | undefined | false>,
  timeoutMs = 10_000,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  let lastError: unknown;
  for (;;) {
    try {
      const value = await look();
      if (value !== undefined && value !== false) return value;
    } catch (error) {
      lastError = error;
    }
    if (performance.now() > deadline) {
      throw new Error(`waited ${timeoutMs} ms in vain for: ${what}`, { cause: lastError });
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
