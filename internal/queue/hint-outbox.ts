/** Sends hints together in the background; processors find the records of lost hints by `dueAt`. */
import { pause } from '../platform/process/deadline.ts';
import type { LabelledCounter } from '../platform/process/registry.ts';
import type { HintSender } from './enqueue.ts';
import type { Hint } from './job.ts';

export const hintResults = ['sent', 'failed', 'dropped'] as const;
type HintResult = (typeof hintResults)[number];

const MAX_WAITING_HINTS = 5_000;
/** A job costs as much as its record, so hints share jobs. */
const LINGER_MS = 10;
const HINTS_PER_SEND = 500;

interface OutboxOptions {
  readonly sender: Pick<HintSender, 'send'>;
  /** Takes hints that could not be sent; must end in bounded time. */
  readonly otherwise?: (hints: readonly Hint[]) => Promise<void>;
  readonly results: LabelledCounter<{ readonly result: HintResult }>;
}

export class HintOutbox {
  readonly #options: OutboxOptions;
  #waiting: Hint[] = [];
  #sending: Promise<void> | undefined;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  add(hint: Hint): void {
    if (this.#waiting.length >= MAX_WAITING_HINTS) {
      this.#options.results.inc({ result: 'dropped' }, 1);
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
    const { sender, otherwise, results } = this.#options;
    try {
      await sender.send(batch);
      results.inc({ result: 'sent' }, batch.length);
    } catch {
      results.inc({ result: 'failed' }, batch.length);
      await otherwise?.(batch).catch(() => {});
    }
  }
}
