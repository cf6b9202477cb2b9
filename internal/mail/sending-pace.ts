/** How fast one process hands mails over: as fast as the relay takes them, found out by its answers. Pure. */
import {
  PACE_ANSWERS,
  PACE_FEW,
  PACE_LONGEST_MS,
  PACE_GROWTH,
  PACE_LEAST,
  PACE_LEAST_GROWTH,
  PACE_SHRINKING,
  PACE_UNKNOWN,
  PACE_WINDOW_MS,
} from './limits.ts';

export class SendingPace {
  /** The operator's bound, in mails a second. */
  readonly #most: number;
  /** Mails a second; infinite until the relay asks to slow down. */
  #rate: number;
  #nextAtMs = 0;
  /** Whether the relay, when it was asked last, took nothing at all: then it is unwell, and its answers show no quota. */
  #unwell = false;
  #window: { readonly sinceMs: number; taken: number; throttled: number } | undefined;

  /** `perSecond` 0: no bound but the relay's. */
  constructor(perSecond: number) {
    this.#most = perSecond === 0 ? Infinity : perSecond;
    this.#rate = this.#most;
  }

  /** Whether the next turn comes at once. */
  isFree(nowMs: number): boolean {
    return this.#nextAtMs <= nowMs;
  }

  /** Takes the next turn; returns in how many milliseconds it comes. */
  takeTurn(nowMs: number): number {
    const at = Math.max(nowMs, this.#nextAtMs);
    this.#nextAtMs = at + 1_000 / this.#rate;
    return at - nowMs;
  }

  /**
   * Notes an answer: additive increase with each second that goes well, multiplicative decrease with one that does not. A relay
   * that was unwell is asked twice as often after each window that goes well.
   */
  note(result: 'taken' | 'throttled', nowMs: number): void {
    // It is well again from here on: what it refused before must not be counted beside what it takes.
    if (this.#unwell && result === 'taken' && this.#window?.taken === 0) this.#window = undefined;
    this.#window ??= { sinceMs: nowMs, taken: 0, throttled: 0 };
    this.#window[result] += 1;
    const { sinceMs, taken, throttled } = this.#window;
    const elapsedMs = nowMs - sinceMs;
    const enough = elapsedMs >= PACE_WINDOW_MS && taken + throttled >= PACE_ANSWERS;
    if (!enough && elapsedMs < PACE_LONGEST_MS) return;
    this.#window = undefined;
    if (throttled > 0) {
      this.#unwell = taken === 0;
      const rate = Math.min(this.#rate, PACE_UNKNOWN);
      const few = throttled / (taken + throttled) <= PACE_FEW;
      // A quiet second shows no quota, so it does not take more than half.
      const wanted = few ? rate : Math.max(rate / 2, Math.min(rate, (taken * 1_000) / elapsedMs));
      this.#rate = Math.max(PACE_LEAST, wanted * PACE_SHRINKING);
    } else if (this.#rate < this.#most) {
      const growth = Math.max(PACE_LEAST_GROWTH, this.#rate * PACE_GROWTH) * (elapsedMs / 1_000);
      this.#rate = Math.min(this.#most, this.#rate + (this.#unwell ? this.#rate : growth));
      if (this.#rate >= PACE_UNKNOWN) this.#unwell = false;
    }
  }
}
