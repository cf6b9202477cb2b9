/** The hints of this process, from Redis or reconcile; a few are worked on at a time. */
import type { Hint } from './job.ts';

/** Each takes 100 bytes and about a millisecond of work. */
export const MAX_IN_HAND = 500;

export class HintsInHand {
  readonly #slots: number;
  readonly #handle: (hint: Hint) => Promise<void>;
  #waiting: Hint[] = [];
  #busy = 0;
  #paused = false;
  #closed = false;
  #onChange: (() => void)[] = [];

  /** A rejection of `handle` is ignored. */
  constructor(options: { readonly slots: number; readonly handle: (hint: Hint) => Promise<void> }) {
    this.#slots = options.slots;
    this.#handle = options.handle;
  }

  get count(): number {
    return this.#busy + this.#waiting.length;
  }

  get paused(): boolean {
    return this.#paused;
  }

  get room(): number {
    return this.#paused || this.#closed ? 0 : Math.max(0, MAX_IN_HAND - this.count);
  }

  take(hints: readonly Hint[]): void {
    this.#waiting.push(...hints);
    this.#begin();
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#begin();
  }

  async whenFree(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (this.#paused || this.count >= this.#slots))
      await this.#change(signal);
  }

  /** Resolves with the hints not begun, once the others are done. */
  async close(signal: AbortSignal): Promise<Hint[]> {
    this.#closed = true;
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
