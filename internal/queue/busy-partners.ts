/** Finds partners that send many hints now, which then wait behind others. */

/** In two windows; a person enters fewer by hand. */
const FIRST_HINTS = 100;
const WINDOW_MS = 10_000;

export class BusyPartners {
  readonly #nowMs: () => number;
  #endsAt = 0;
  #counts = new Map<string, number>();
  #before = new Map<string, number>();

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

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
