/** Time as the rest of the code is given it, so that a test can hold the clock. */

export const DAY_MS = 86_400_000;

export interface Clock {
  /** Wall-clock time, for what is stored. */
  now(): Date;
  /** Milliseconds that never jump back, for deadlines inside one process. */
  monotonicMs(): number;
}

export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
};

/** `date` moved by `milliseconds`. */
export function later(date: Date, milliseconds: number): Date {
  return new Date(date.getTime() + milliseconds);
}
