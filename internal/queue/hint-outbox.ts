/** Sends a queue's hints together and never in anybody's way: reconcile finds the record of a lost hint. */
import { pause } from '../platform/deadline.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import type { Hint } from './job.ts';

/** Hints waiting for Redis; beyond it they are dropped, because reconcile finds the records anyway. */
const MAX_WAITING_HINTS = 5_000;
/** Hints wait this long for company: nobody waits for them, and a job for each would cost as much as its record. */
const LINGER_MS = 5;
/** Hints in one `addBulk`. */
const HINTS_PER_SEND = 500;

export class HintOutbox {
  readonly #send: (hints: readonly Hint[]) => Promise<void>;
  readonly #otherwise: (hints: readonly Hint[]) => Promise<void> | void;
  readonly #results: IngestMetrics['hints'];
  #waiting: Hint[] = [];
  #sending: Promise<void> | undefined;

  /** What `send` rejects goes to `otherwise`, which may reject too. Both must end within a bounded time. */
  constructor(options: {
    readonly send: (hints: readonly Hint[]) => Promise<void>;
    readonly otherwise: (hints: readonly Hint[]) => Promise<void> | void;
    readonly results: IngestMetrics['hints'];
  }) {
    this.#send = options.send;
    this.#otherwise = options.otherwise;
    this.#results = options.results;
  }

  add(hint: Hint): void {
    if (this.#waiting.length >= MAX_WAITING_HINTS) {
      this.#results.inc({ result: 'dropped' }, 1);
      return;
    }
    this.#waiting.push(hint);
    this.#sending ??= this.#sendAll();
  }

  /** Resolves once nothing is waiting. */
  whenEmpty(): Promise<void> {
    return this.#sending ?? Promise.resolve();
  }

  async #sendAll(): Promise<void> {
    await pause(LINGER_MS);
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, HINTS_PER_SEND);
      try {
        await this.#send(batch);
        this.#results.inc({ result: 'sent' }, batch.length);
      } catch {
        this.#results.inc({ result: 'failed' }, batch.length);
        await Promise.resolve(this.#otherwise(batch)).catch(() => {});
      }
    }
    this.#sending = undefined;
  }
}
