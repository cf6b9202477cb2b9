/** Sends a queue's hints together and never in anybody's way: a lost hint is found by reconcile. */
import { pause } from '../platform/deadline.ts';
import type { Hint } from './job.ts';

/** Hints waiting for Redis; beyond it they are dropped, because reconcile finds the records anyway. */
const MAX_WAITING_HINTS = 5_000;
/** Hints wait this long for company: nobody waits for them, and a job for each would cost as much as its record. */
const LINGER_MS = 5;
/** Hints in one `addBulk`. */
const HINTS_PER_SEND = 500;

export class HintOutbox {
  readonly #send: (hints: readonly Hint[]) => Promise<void>;
  readonly #results: { inc(labels: { result: string }, value: number): void };
  #waiting: Hint[] = [];
  #sending: Promise<void> | undefined;

  /** `send` may reject; it must not hang for ever. */
  constructor(options: {
    readonly send: (hints: readonly Hint[]) => Promise<void>;
    readonly results: { inc(labels: { result: string }, value: number): void };
  }) {
    this.#send = options.send;
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
      const result = await this.#send(batch).then(
        () => 'sent',
        () => 'failed',
      );
      this.#results.inc({ result }, batch.length);
    }
    this.#sending = undefined;
  }
}
