/** Sends queue hints after the answer, together, and never in anybody's way: a lost hint is found by reconcile. */
import type { Hint } from '../queue/job.ts';
import { HINT_BATCH, MAX_WAITING_HINTS } from './limits.ts';

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
    // Answers that are ready in this turn of the event loop go out first, and their hints share a batch.
    await new Promise(setImmediate);
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, HINT_BATCH);
      const result = await this.#send(batch).then(
        () => 'sent',
        () => 'failed',
      );
      this.#results.inc({ result }, batch.length);
    }
    this.#sending = undefined;
  }
}
