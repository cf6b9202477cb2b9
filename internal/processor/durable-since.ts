/**
 * Measures how long writes have been durable; until then withdrawals are late, and reconcile waits.
 */
import type { Clock } from '../platform/clock.ts';

export class DurableSince {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #probe: () => Promise<boolean>;
  #since: number | undefined;

  constructor(clock: Pick<Clock, 'monotonicMs'>, probe: () => Promise<boolean>) {
    this.#clock = clock;
    this.#probe = probe;
  }

  async look(): Promise<void> {
    const durable = await this.#probe().catch(() => false);
    this.#since = durable ? (this.#since ?? this.#clock.monotonicMs()) : undefined;
  }

  get lastsMs(): number {
    return this.#since === undefined ? 0 : this.#clock.monotonicMs() - this.#since;
  }
}
