/** A token bucket: tokens grow with time, up to `most`. */
import type { Clock } from './clock.ts';

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
