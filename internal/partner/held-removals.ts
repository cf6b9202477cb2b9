/** Removals of many keys at once that wait for an operator or for time to pass: one document for each installation. */
import type { Db } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { bounded } from '../platform/mongo-read.ts';
import { keySyncOf } from './key-store.ts';

/** Long enough for an operator to see the alert and act; short enough that a wanted removal is not forgotten. */
export const HELD_REMOVAL_MS = 600_000;
/** Installations in one list for an operator. */
const LISTED_MAX = 1_000;

export interface HeldRemoval {
  readonly _id: string;
  readonly owner: string;
  readonly since: Date;
  /** Hashes of the keys that stay active for now. */
  readonly keys: readonly string[];
  readonly confirmedAt?: Date;
}

export class HeldRemovals {
  readonly #db: Db;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#db = options.db;
    this.#clock = options.clock;
  }

  get #held() {
    return keySyncOf<HeldRemoval>(this.#db);
  }

  async of(owner: string): Promise<HeldRemoval | undefined> {
    return (await this.#held.findOne({ _id: heldOf(owner) })) ?? undefined;
  }

  /** Begins to hold `keys`, for the whole time from now on; what was confirmed before counts no more. */
  async hold(owner: string, keys: readonly string[]): Promise<void> {
    await this.#held.replaceOne({ _id: heldOf(owner) }, { owner, since: this.#clock.now(), keys }, { upsert: true });
  }

  async drop(owner: string): Promise<void> {
    await this.#held.deleteOne({ _id: heldOf(owner) });
  }

  async list(): Promise<readonly HeldRemoval[]> {
    return this.#held
      .find({ _id: { $gt: heldOf(''), $lt: heldOf('\uffff') } }, bounded)
      .limit(LISTED_MAX)
      .toArray();
  }

  /** Lets the controller go on with just these; false when another set is held by now. */
  async confirm({ _id, since }: HeldRemoval): Promise<boolean> {
    const { matchedCount } = await this.#held.updateOne({ _id, since }, { $set: { confirmedAt: this.#clock.now() } });
    return matchedCount === 1;
  }
}

const heldOf = (owner: string): string => `held:${owner}`;
