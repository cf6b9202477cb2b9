/**
 * The memory that all incoming bodies share. When it is full, the oldest body is dropped: fast
 * bodies have finished by then, so slow bodies cannot keep others out.
 */

export interface MemoryHolder {
  giveWay(): void;
}

export class BodyMemory {
  readonly #maxBytes: number;
  #taken = 0;
  readonly #held = new Map<MemoryHolder, number>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Drops the oldest bodies, even `holder`. */
  resize(holder: MemoryHolder, bytes: number): void {
    this.#taken += bytes - (this.#held.get(holder) ?? 0);
    this.#held.set(holder, bytes);
    while (this.#taken > this.#maxBytes) {
      const [oldest] = this.#held.keys();
      if (oldest === undefined) return;
      this.release(oldest);
      oldest.giveWay();
    }
  }

  release(holder: MemoryHolder): void {
    this.#taken -= this.#held.get(holder) ?? 0;
    this.#held.delete(holder);
  }
}
