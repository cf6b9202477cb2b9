/**
 * For how long writes have become durable. While they do not, withdrawals are late too, and
 * reconcile must not queue unclaimed records.
 */
import type { Clock } from '../platform/clock.ts';

export class DurableSince {
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #probe: () => Promise<boolean>;
  #since: number | undefined;

  /** A rejecting `probe` means no. */
  constructor(clock: Pick<Clock, 'monotonicMs'>, probe: () => Promise<boolean>) {
    this.#clock = clock;
    this.#probe = probe;
  }

  async look(): Promise<void> {
    const durable = await this.#probe().catch(() => false);
    this.#since = durable ? (this.#since ?? this.#clock.monotonicMs()) : undefined;
  }

  /** It is 0 after a failure. */
  get lastsMs(): number {
    return this.#since === undefined ? 0 : this.#clock.monotonicMs() - this.#since;
  }
}
