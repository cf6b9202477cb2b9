/**
 * A worker's hold on a record: renewed while it works, checked before each effect, given up when it
 * is lost.
 */
import type { Clock } from '../platform/clock.ts';
import type { Position, WorkerMoves } from '../submission/worker-moves.ts';
import type { OpenState } from '../submission/states.ts';
import { CLAIM_FRESH_MS, CLAIM_TRUSTED_MS, RENEW_EVERY_MS } from './limits.ts';

/** The record is someone else's now; the work stops without a trace. */
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

  /** `confirmedAt` is the monotonic time just before the claim was asked for. */
  constructor(options: {
    readonly position: Position;
    readonly store: WorkerMoves;
    readonly clock: Clock;
    readonly confirmedAt: number;
    /** Whether an operator wants the work to end, asked before each effect. */
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

  /**
   * The record was moved to `state` under this claim, asked for at `askedAtMs` (monotonic), which
   * confirms it.
   */
  moved(state: OpenState, askedAtMs: number): void {
    this.#position = { ...this.#position, state };
    this.#confirmedAt = askedAtMs;
  }

  /** Aborts when the claim is lost. */
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /**
   * Passes only if the store confirmed, just now, that the claim is still ours. Comes before every
   * effect outside it.
   */
  async confirm(): Promise<void> {
    if (this.#clock.monotonicMs() - this.#confirmedAt > CLAIM_FRESH_MS) await this.#renew();
    this.assertHeld();
  }

  /** Whether the claim was confirmed recently enough to be trusted; needs no round trip. */
  get held(): boolean {
    // A process that was frozen wakes up with an old confirmation and must not act on it.
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
