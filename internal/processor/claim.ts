/** A worker's claim on a record: it is renewed while the worker goes on, and trusted for a while. */
import type { Clock } from '../platform/process/clock.ts';
import type { OpenRecord } from '../submission/submission.ts';
import type { Position, WorkerMoves } from '../submission/worker-moves.ts';
import type { Holds } from './outage-gate.ts';

/** Allows three tries in a claim's 45 s. */
const RENEW_EVERY_MS = 15_000;
/** Leaves 10 s of a claim for a slow renewal. */
export const CLAIM_TRUSTED_MS = 35_000;
/** A confirmation this fresh is enough for an e-mail. */
export const CLAIM_FRESH_MS = 2_000;

type ClaimedRecord = Position & Pick<OpenRecord, 'partnerId'>;

interface ClaimTools {
  readonly clock: Clock;
  readonly store: Pick<WorkerMoves, 'renew'>;
  readonly holds: Pick<Holds, 'has'>;
}

export class Claim {
  readonly #record: ClaimedRecord;
  readonly #tools: ClaimTools;
  readonly #lost = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #confirmedAt: number;

  /** `confirmedAt` is the monotonic time just before the claim request. */
  constructor(record: ClaimedRecord, confirmedAt: number, tools: ClaimTools) {
    this.#record = record;
    this.#tools = tools;
    this.#confirmedAt = confirmedAt;
    this.#timer = setInterval(() => void this.#renew().catch(() => {}), RENEW_EVERY_MS);
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  /** False if nothing more may be done. Rejects if the store cannot be asked. */
  async confirm({ again = false } = {}): Promise<boolean> {
    if (again || this.#tools.clock.monotonicMs() - this.#confirmedAt > CLAIM_FRESH_MS)
      await this.#renew();
    return this.mayGoOn;
  }

  get mayGoOn(): boolean {
    // A process that was frozen must not act on an old confirmation.
    const age = this.#tools.clock.monotonicMs() - this.#confirmedAt;
    const onHold = this.#tools.holds.has(this.#record.partnerId);
    return !this.#lost.signal.aborted && age <= CLAIM_TRUSTED_MS && !onHold;
  }

  release(): void {
    clearInterval(this.#timer);
  }

  async #renew(): Promise<void> {
    const askedAt = this.#tools.clock.monotonicMs();
    const held = await this.#tools.store.renew(this.#record);
    if (held) this.#confirmedAt = askedAt;
    else this.#lost.abort();
  }
}
