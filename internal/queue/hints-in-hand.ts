/** The hints that this process has in hand: worked on a few at a time, whether Redis or reconcile gave them. */
import type { Hint, QueueName } from './job.ts';

/** Hints that reconcile may put into the hands of one process; a hint is 100 bytes and costs about a millisecond's work. */
export const MAX_IN_HAND = 500;

export class HintsInHand {
  readonly queue: QueueName;
  readonly #slots: number;
  readonly #handle: (hint: Hint) => Promise<void>;
  #waiting: Hint[] = [];
  #busy = 0;
  #paused = false;
  #closed = false;
  #onChange: (() => void)[] = [];
  /** Who waits for a slot, the oldest first. */
  readonly #reserving = new Set<(slot: (() => void) | undefined) => void>();

  /** `slots` hints are worked on at the same time. A rejection of `handle` is ignored. */
  constructor(options: {
    readonly queue: QueueName;
    readonly slots: number;
    readonly handle: (hint: Hint) => Promise<void>;
  }) {
    this.queue = options.queue;
    this.#slots = options.slots;
    this.#handle = options.handle;
  }

  get count(): number {
    return this.#busy + this.#waiting.length;
  }

  get paused(): boolean {
    return this.#paused;
  }

  /** How many more hints reconcile may give. */
  get room(): number {
    return this.#paused || this.#closed ? 0 : Math.max(0, MAX_IN_HAND - this.count);
  }

  take(hints: readonly Hint[]): void {
    this.#waiting.push(...hints);
    this.#begin();
  }

  /** Takes a slot for work without a hint, if another one stays free for hints. Call the result when the work is done. */
  tryReserve(): (() => void) | undefined {
    if (this.#paused || this.#closed || this.count + 1 >= this.#slots) return undefined;
    this.#busy += 1;
    return () => this.#freeSlot();
  }

  /** The same as soon as there is such a slot; undefined after `waitMs`, or at once where none can come. */
  reserve(waitMs: number): Promise<(() => void) | undefined> {
    const slot = this.tryReserve();
    if (slot !== undefined || this.#paused || this.#closed || this.#slots < 2) return Promise.resolve(slot);
    return new Promise((resolve) => {
      const give = (given: (() => void) | undefined): void => {
        clearTimeout(timer);
        this.#reserving.delete(give);
        resolve(given);
      };
      const timer = setTimeout(give, waitMs, undefined);
      this.#reserving.add(give);
    });
  }

  /** Begins no more hints until `resume`; those in work go on. */
  pause(): void {
    this.#paused = true;
    for (const give of this.#reserving) give(undefined);
  }

  resume(): void {
    this.#paused = false;
    this.#begin();
  }

  /** Resolves when a slot is free and the worker is not paused, or when `signal` aborts. */
  async whenFree(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (this.#paused || this.count >= this.#slots)) await this.#change(signal);
  }

  /** Begins no more hints, and resolves with those not begun once the others are done. */
  async close(signal: AbortSignal): Promise<Hint[]> {
    this.#closed = true;
    for (const give of this.#reserving) give(undefined);
    const left = this.#waiting.splice(0);
    while (!signal.aborted && this.#busy > 0) await this.#change(signal);
    return left;
  }

  #begin(): void {
    while (!this.#paused && !this.#closed && this.#busy < this.#slots) {
      const hint = this.#waiting.shift();
      if (hint === undefined) break;
      this.#busy += 1;
      void this.#handle(hint)
        .catch(() => {})
        .finally(() => this.#freeSlot());
    }
    for (const give of this.#reserving) {
      const slot = this.tryReserve();
      if (slot === undefined) break;
      give(slot);
    }
    for (const tell of this.#onChange.splice(0)) tell();
  }

  #freeSlot(): void {
    this.#busy -= 1;
    this.#begin();
  }

  #change(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const tell = (): void => {
        signal.removeEventListener('abort', tell);
        resolve();
      };
      signal.addEventListener('abort', tell, { once: true });
      this.#onChange.push(tell);
    });
  }
}
