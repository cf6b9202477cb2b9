/** Time as a dependency, so that tests can control it, and what may be spent in it. */

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

/* A token bucket: tokens grow with time, up to `most`. */

export class Allowance {
  readonly #most: number;
  readonly #perMs: number;
  readonly #clock: Clock;
  #left: number;
  #atMs: number;

  constructor(most: number, perSecond: number, clock: Clock) {
    this.#most = most;
    this.#perMs = perSecond / 1_000;
    this.#clock = clock;
    this.#left = most;
    this.#atMs = clock.monotonicMs();
  }

  /** False if no token is left. */
  spend(): boolean {
    const nowMs = this.#clock.monotonicMs();
    this.#left = Math.min(this.#most, this.#left + (nowMs - this.#atMs) * this.#perMs);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}
