/** Sends hints together in the background; reconcile finds the records of lost hints. */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Counts } from '../platform/metric-types.ts';
import type { Hint } from './job.ts';

export const hintResults = ['sent', 'failed', 'dropped'] as const;
type HintResult = (typeof hintResults)[number];

const MAX_WAITING_HINTS = 5_000;
/** A job costs as much as its record, so hints share jobs. */
const LINGER_MS = 10;
const HINTS_PER_SEND = 500;

/** A failover loses recent hints, so this many are sent again. */
const MAX_SENT_HINTS = 2_000;
/** Reconcile has found the records of older hints. */
const SENT_AGAIN_MS = 30_000;

export class HintOutbox {
  readonly #send: (hints: readonly Hint[]) => Promise<void>;
  readonly #otherwise: (hints: readonly Hint[]) => Promise<void> | void;
  readonly #results: Counts<{ readonly result: HintResult }>;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #waiting: Hint[] = [];
  #sent: { readonly hints: readonly Hint[]; readonly at: number }[] = [];
  #sentHints = 0;
  #failed = false;
  #sending: Promise<void> | undefined;

  /** `otherwise` takes hints that `send` rejects. Both must end in bounded time. */
  constructor(options: {
    readonly send: (hints: readonly Hint[]) => Promise<void>;
    readonly otherwise: (hints: readonly Hint[]) => Promise<void> | void;
    readonly results: Counts<{ readonly result: HintResult }>;
    readonly clock: Pick<Clock, 'monotonicMs'>;
  }) {
    this.#send = options.send;
    this.#otherwise = options.otherwise;
    this.#results = options.results;
    this.#clock = options.clock;
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
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, HINTS_PER_SEND);
      if (!(await this.#deliver(batch))) continue;
      if (this.#failed) await this.#sendAgain();
      this.#keep(batch);
    }
    this.#sending = undefined;
  }

  #keep(hints: readonly Hint[]): void {
    this.#sent.push({ hints, at: this.#clock.monotonicMs() });
    this.#sentHints += hints.length;
    while (this.#sentHints > MAX_SENT_HINTS) this.#sentHints -= this.#sent.shift()!.hints.length;
  }

  async #deliver(batch: readonly Hint[]): Promise<boolean> {
    try {
      await this.#send(batch);
      this.#results.inc({ result: 'sent' }, batch.length);
      return true;
    } catch {
      this.#failed = true;
      this.#results.inc({ result: 'failed' }, batch.length);
      await Promise.resolve(this.#otherwise(batch)).catch(() => {});
      return false;
    }
  }

  /** Hints are repeated once, so a failing Redis gets at most twice the work. */
  async #sendAgain(): Promise<void> {
    this.#failed = false;
    const since = this.#clock.monotonicMs() - SENT_AGAIN_MS;
    const young = this.#sent.splice(0).flatMap(({ hints, at }) => (at >= since ? hints : []));
    this.#sentHints = 0;
    for (let from = 0; from < young.length; from += HINTS_PER_SEND) {
      await this.#deliver(young.slice(from, from + HINTS_PER_SEND));
    }
  }
}
