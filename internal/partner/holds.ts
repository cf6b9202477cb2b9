/** Partners on hold: operators keep their work from being done. */
import type { Db } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { isDuplicateKey } from '../platform/mongo.ts';
import { bounded } from '../platform/mongo-read.ts';

export const PARTNER_HOLDS = 'partner_holds';

/** More partners on hold at once would be a mistake. */
const LISTED_MAX = 10_000;

/** It stays after a release, so that a late write of an older command does nothing. */
export interface Hold {
  readonly _id: string;
  readonly onHold: boolean;
  readonly version: number;
  readonly at: Date;
  readonly by: string;
}

export class HoldStore {
  readonly #db: Db;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#db = options.db;
    this.#clock = options.clock;
  }

  get #holds() {
    return this.#db.collection<Hold>(PARTNER_HOLDS);
  }

  async list(): Promise<Hold[]> {
    return this.#holds.find({ onHold: true }, bounded).sort({ _id: 1 }).limit(LISTED_MAX).toArray();
  }

  async isOnHold(partnerId: string): Promise<boolean> {
    return (await this.#holds.findOne({ _id: partnerId }, bounded))?.onHold ?? false;
  }

  /** False if nothing changes. */
  hold(partnerId: string, by: string): Promise<boolean> {
    return this.#change(partnerId, true, by);
  }

  release(partnerId: string, by: string): Promise<boolean> {
    return this.#change(partnerId, false, by);
  }

  async #change(partnerId: string, onHold: boolean, by: string): Promise<boolean> {
    const before = await this.#holds.findOne({ _id: partnerId }, bounded);
    if ((before?.onHold ?? false) === onHold) return false;
    const change = { onHold, version: (before?.version ?? 0) + 1, at: this.#clock.now(), by };
    if (before !== null) {
      const { version } = before;
      return (
        (await this.#holds.updateOne({ _id: partnerId, version }, { $set: change }))
          .matchedCount === 1
      );
    }
    try {
      await this.#holds.insertOne({ _id: partnerId, ...change });
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }
}
