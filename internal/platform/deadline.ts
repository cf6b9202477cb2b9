/** Waiting that always ends: deadlines around promises, abortable pauses and back-off. */

export class DeadlineError extends Error {
  override readonly name = 'DeadlineError';
}

/** `promise`, or a rejection with `DeadlineError` after `milliseconds`. The promise itself goes on unobserved. */
export async function withDeadline<T>(promise: Promise<T>, milliseconds: number, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new DeadlineError(`${what} took longer than ${milliseconds} ms`)), milliseconds);
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/** Resolves after `milliseconds`, or at once when `signal` aborts. Never rejects. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted === true) return Promise.resolve();
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    signal?.addEventListener('abort', end, { once: true });
  });
}

/** Exponential growth from `firstMs`, capped at `capMs`, with ±`jitter` (0-1) so that pods do not retry in step. */
export function backoffMs(
  attempt: number,
  shape: { readonly firstMs: number; readonly capMs: number; readonly jitter: number },
  random: () => number = Math.random,
): number {
  const base = Math.min(shape.capMs, shape.firstMs * 2 ** Math.max(0, attempt - 1));
  return Math.round(base * (1 + shape.jitter * (2 * random() - 1)));
}

/** Runs `task` until it succeeds, pausing in between; resolves `undefined` when `signal` aborts first. */
export async function retryUntilDone<T>(
  task: () => Promise<T>,
  options: {
    readonly signal: AbortSignal;
    readonly firstMs: number;
    readonly capMs: number;
    onFailure(error: unknown, attempt: number): void;
  },
): Promise<T | undefined> {
  for (let attempt = 1; !options.signal.aborted; attempt += 1) {
    try {
      return await task();
    } catch (error) {
      options.onFailure(error, attempt);
      await pause(backoffMs(attempt, { firstMs: options.firstMs, capMs: options.capMs, jitter: 0.2 }), options.signal);
    }
  }
  return undefined;
}
