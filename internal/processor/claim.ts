/** A worker's claim on a record: renewed while it works, checked before each effect. */
import type { Clock } from '../platform/clock.ts';
import type { Position, WorkerMoves } from '../submission/worker-moves.ts';
import { CLAIM_FRESH_MS, CLAIM_TRUSTED_MS, RENEW_EVERY_MS } from './limits.ts';

export class Claim {
  readonly position: Position;
  readonly #store: WorkerMoves;
  readonly #clock: Clock;
  readonly #stopped: () => boolean;
  readonly #lost = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #confirmedAt: number;

  /** `confirmedAt` is the monotonic time just before the claim request. */
  constructor(options: {
    readonly position: Position;
    readonly store: WorkerMoves;
    readonly clock: Clock;
    readonly confirmedAt: number;
    readonly stopped: () => boolean;
  }) {
    this.position = options.position;
    this.#store = options.store;
    this.#clock = options.clock;
    this.#confirmedAt = options.confirmedAt;
    this.#stopped = options.stopped;
    this.#timer = setInterval(() => void this.#renew().catch(() => {}), RENEW_EVERY_MS);
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** False if nothing more may be done. Rejects if the store cannot be asked. */
  async confirm({ again = false } = {}): Promise<boolean> {
    if (again || this.#clock.monotonicMs() - this.#confirmedAt > CLAIM_FRESH_MS)
      await this.#renew();
    return this.held;
  }

  get held(): boolean {
    // A process that was frozen must not act on an old confirmation.
    const age = this.#clock.monotonicMs() - this.#confirmedAt;
    return !this.#lost.signal.aborted && age <= CLAIM_TRUSTED_MS && !this.#stopped();
  }

  release(): void {
    clearInterval(this.#timer);
  }

  async #renew(): Promise<void> {
    const askedAt = this.#clock.monotonicMs();
    const held = await this.#store.renew(this.position);
    if (held) this.#confirmedAt = askedAt;
    else this.#lost.abort();
  }
}
