/**
 * Which partners send much just now: their hints wait behind those of all others, so that nobody
 * waits for a bulk.
 */

/**
 * Hints of a partner that go first in a window and the one before, in one process: more than a
 * person enters by hand.
 */
const FIRST_HINTS = 100;
const WINDOW_MS = 10_000;

export class Shares {
  readonly #nowMs: () => number;
  #endsAt = 0;
  #counts = new Map<string, number>();
  #before = new Map<string, number>();

  /** `nowMs` is monotonic. */
  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Counts one hint of the partner, and says whether it is one of many. */
  isOneOfMany(partnerId: string): boolean {
    const now = this.#nowMs();
    if (now >= this.#endsAt) {
      this.#before = now < this.#endsAt + WINDOW_MS ? this.#counts : new Map();
      this.#counts = new Map();
      this.#endsAt = now + WINDOW_MS;
    }
    const count = (this.#counts.get(partnerId) ?? 0) + 1;
    this.#counts.set(partnerId, count);
    return count + (this.#before.get(partnerId) ?? 0) > FIRST_HINTS;
  }
}
