/** Time as a dependency, so that tests can control it. */

export const DAY_MS = 86_400_000;

export interface Clock {
  now(): Date;
  /** Never jumps back. */
  monotonicMs(): number;
  /** Monotonic time of the last jump of `now` that was seen. */
  readonly steppedAtMs?: number | undefined;
}

export const systemClock: Clock = {
  now: () => new Date(),
  monotonicMs: () => performance.now(),
};

export function later(date: Date, milliseconds: number): Date {
  return new Date(date.getTime() + milliseconds);
}
