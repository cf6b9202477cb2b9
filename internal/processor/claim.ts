/** A worker's claim on a record: renewed while it works, checked before each effect. */
import type { Clock } from '../platform/clock.ts';
import type { Position, WorkerMoves } from '../submission/worker-moves.ts';
import type { OpenState } from '../submission/states.ts';
import { CLAIM_FRESH_MS, CLAIM_TRUSTED_MS, RENEW_EVERY_MS } from './limits.ts';

/** Another worker has the record. */
export class ClaimLostError extends Error {
  override readonly name = 'ClaimLostError';
}

export class Claim {
  #position: Position;
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
    this.#position = options.position;
    this.#store = options.store;
    this.#clock = options.clock;
    this.#confirmedAt = options.confirmedAt;
    this.#stopped = options.stopped;
    this.#timer = setInterval(() => void this.#renew().catch(() => {}), RENEW_EVERY_MS);
  }

  get position(): Position {
    return this.#position;
  }

  moved(state: OpenState, askedAtMs: number): void {
    this.#position = { ...this.#position, state };
    this.#confirmedAt = askedAtMs;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** Call this before every effect outside the store. */
  async confirm(): Promise<void> {
    if (this.#clock.monotonicMs() - this.#confirmedAt > CLAIM_FRESH_MS) await this.#renew();
    this.assertHeld();
  }

  get held(): boolean {
    // A process that was frozen must not act on an old confirmation.
    const age = this.#clock.monotonicMs() - this.#confirmedAt;
    return !this.#lost.signal.aborted && age <= CLAIM_TRUSTED_MS && !this.#stopped();
  }

  assertHeld(): void {
    if (!this.held) throw new ClaimLostError(this.position.requestId);
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
