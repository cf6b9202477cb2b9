/**
 * For how long this process has seen writes become durable. While they do not, or take too long,
 * the withdrawals of what was answered 500 come late as well, so that no time is enough to wait for
 * them.
 */
import type { Clock } from '../platform/clock.ts';

export class DurableSince {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #probe: () => Promise<boolean>;
  #since: number | undefined;

  /** `probe` answers whether a write becomes durable now; one that rejects counts as "no". */
  constructor(clock: Pick<Clock, 'monotonicMs'>, probe: () => Promise<boolean>) {
    this.#clock = clock;
    this.#probe = probe;
  }

  async look(): Promise<void> {
    const durable = await this.#probe().catch(() => false);
    this.#since = durable ? (this.#since ?? this.#clock.monotonicMs()) : undefined;
  }

  /**
   * Milliseconds between the first look since they were not and now; 0 where the last look found
   * that they are not.
   */
  get lastsMs(): number {
    return this.#since === undefined ? 0 : this.#clock.monotonicMs() - this.#since;
  }
}
