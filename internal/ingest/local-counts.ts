/** Counts in memory for a bounded number of keys. */
import { LIMITER_LOCAL_KEYS } from './limits.ts';

export interface Counted {
  readonly current: number;
  readonly ttl: number;
}

export class LocalCounts {
  readonly #nowMs: () => number;
  readonly #counts = new Map<string, { current: number; readonly endsAtMs: number }>();

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  add(key: string, by: number, windowMs: number): Counted {
    const nowMs = this.#nowMs();
    const known = this.#counts.get(key);
    const count =
      known !== undefined && known.endsAtMs > nowMs
        ? known
        : { current: 0, endsAtMs: nowMs + windowMs };
    count.current += by;
    this.#counts.delete(key);
    this.#counts.set(key, count);
    for (const oldest of this.#counts.keys()) {
      if (this.#counts.size <= LIMITER_LOCAL_KEYS) break;
      this.#counts.delete(oldest);
    }
    return { current: count.current, ttl: count.endsAtMs - nowMs };
  }
}
