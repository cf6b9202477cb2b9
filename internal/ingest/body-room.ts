/**
 * The memory that bodies on their way may take together, so that many slow partners cannot take all
 * there is.
 *
 * Where there is none left, the body that has been on its way longest gives way: one that came at
 * the speed of a network is gone before anybody can ask for its room, and one that is held back on
 * purpose cannot keep others out.
 */

/** Something that holds room, and can be told to give it up. */
export interface RoomHolder {
  /** Its room has been taken away. */
  giveWay(): void;
}

export class BodyRoom {
  readonly #maxBytes: number;
  #taken = 0;
  /** A map keeps the order in which its keys came: the first holder is the oldest. */
  readonly #held = new Map<RoomHolder, number>();

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /**
   * Gives `holder` this much room instead of what it had; the oldest give way until it is there,
   * perhaps `holder` itself.
   */
  resize(holder: RoomHolder, bytes: number): void {
    this.#taken += bytes - (this.#held.get(holder) ?? 0);
    this.#held.set(holder, bytes);
    while (this.#taken > this.#maxBytes) {
      const [oldest] = this.#held.keys();
      if (oldest === undefined) return;
      this.release(oldest);
      oldest.giveWay();
    }
  }

  release(holder: RoomHolder): void {
    this.#taken -= this.#held.get(holder) ?? 0;
    this.#held.delete(holder);
  }
}
