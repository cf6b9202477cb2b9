/** Deadlines for promises, pauses that can be aborted, and back-off. */

export class DeadlineError extends Error {
  override readonly name = 'DeadlineError';
}

/** Rejects with `DeadlineError` after `milliseconds`; the promise itself continues. */
export async function withDeadline<T>(
  promise: Promise<T>,
  milliseconds: number,
  what: string,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new DeadlineError(`${what} took longer than ${milliseconds} ms`)),
      milliseconds,
    );
  });
  try {
    return await Promise.race([promise, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/** Never rejects; ends early when `signal` aborts. */
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

/** Share by which waits vary, so that pods do not act at the same time. */
export const JITTER = 0.2;

export interface BackOff {
  readonly firstMs: number;
  readonly capMs: number;
}

/** Doubles from `firstMs` to `capMs`, with jitter. */
export function backoffMs(failures: number, { firstMs, capMs }: BackOff): number {
  return jittered(Math.min(capMs, firstMs * 2 ** Math.max(0, failures - 1)));
}

export function jittered(milliseconds: number, random: () => number = Math.random): number {
  return Math.round(milliseconds * (1 + JITTER * (2 * random() - 1)));
}

/** Resolves to `undefined` if `signal` aborts first. */
export async function retryUntilDone<T>(
  task: () => Promise<T>,
  options: BackOff & {
    readonly signal: AbortSignal;
    onFailure(error: unknown, failures: number): void;
  },
): Promise<T | undefined> {
  for (let failures = 1; !options.signal.aborted; failures += 1) {
    try {
      return await task();
    } catch (error) {
      options.onFailure(error, failures);
      await pause(backoffMs(failures, options), options.signal);
    }
  }
  return undefined;
}
