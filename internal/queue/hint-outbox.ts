/** Sends hints together in the background; processors find the records of lost hints by `dueAt`. */
import { pause } from '../platform/deadline.ts';
import type { Counts } from '../platform/metric-types.ts';
import type { Hint } from './job.ts';

export const hintResults = ['sent', 'failed', 'dropped'] as const;
type HintResult = (typeof hintResults)[number];

const MAX_WAITING_HINTS = 5_000;
/** A job costs as much as its record, so hints share jobs. */
const LINGER_MS = 10;
const HINTS_PER_SEND = 500;

export class HintOutbox {
  readonly #send: (hints: readonly Hint[]) => Promise<void>;
  readonly #otherwise: (hints: readonly Hint[]) => Promise<void> | void;
  readonly #results: Counts<{ readonly result: HintResult }>;
  #waiting: Hint[] = [];
  #sending: Promise<void> | undefined;

  /** `otherwise` takes hints that `send` rejects. Both must end in bounded time. */
  constructor(options: {
    readonly send: (hints: readonly Hint[]) => Promise<void>;
    readonly otherwise: (hints: readonly Hint[]) => Promise<void> | void;
    readonly results: Counts<{ readonly result: HintResult }>;
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

  whenEmpty(): Promise<void> {
    return this.#sending ?? Promise.resolve();
  }

  async #sendAll(): Promise<void> {
    await pause(LINGER_MS);
    while (this.#waiting.length > 0) await this.#deliver(this.#waiting.splice(0, HINTS_PER_SEND));
    this.#sending = undefined;
  }

  async #deliver(batch: readonly Hint[]): Promise<void> {
    try {
      await this.#send(batch);
      this.#results.inc({ result: 'sent' }, batch.length);
    } catch {
      this.#results.inc({ result: 'failed' }, batch.length);
      await Promise.resolve(this.#otherwise(batch)).catch(() => {});
    }
  }
}
