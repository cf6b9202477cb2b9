/** Holds: which work of a partner operators keep from being done, let go on, or end. Collection `partner_holds`. */
import type { Db } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { bounded } from '../platform/mongo-read.ts';

export const PARTNER_HOLDS = 'partner_holds';

/** An ended hold is known to processors for this long: what it covers comes up within the three days of retries. */
const REMEMBERED_MS = 30 * DAY_MS;
/** Holds in one list. */
const LISTED_MAX = 10_000;

/** One document of `partner_holds`. */
export interface Hold {
  readonly _id: string;
  readonly partnerId: string;
  /** `released`: the work goes on. `discarded`: the work ends as rejected. */
  readonly state: 'held' | 'released' | 'discarded';
  /** Covers what was received from then on; absent: everything. */
  readonly since?: Date;
  /** Covers what was received before; only where `discarded`. */
  readonly until?: Date;
  readonly at: Date;
  readonly by: string;
  readonly endedAt?: Date;
  readonly endedBy?: string;
}

/** What decides whether a hold covers a record. */
export interface Held {
  readonly partnerId?: string;
  readonly receivedAt: Date;
}

/** The hold that says what becomes of the record; `discarded` outranks `held`. Undefined: it is worked on. */
export function holdOver(holds: readonly Hold[], { partnerId, receivedAt }: Held): Hold | undefined {
  const over = holds.filter(
    (hold) =>
      hold.partnerId === partnerId &&
      hold.state !== 'released' &&
      (hold.since === undefined || receivedAt >= hold.since) &&
      (hold.until === undefined || receivedAt < hold.until),
  );
  return over.find(({ state }) => state === 'discarded') ?? over[0];
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

  /** For processors: all that are in force, and those that ended not long ago. */
  async load(): Promise<Hold[]> {
    const remembered = { endedAt: { $gt: later(this.#clock.now(), -REMEMBERED_MS) } };
    return this.#holds.find({ $or: [{ state: 'held' }, remembered] }, { limit: LISTED_MAX, ...bounded }).toArray();
  }

  /** For operators, newest first: all holds, or those of one partner. */
  async list(partnerId?: string): Promise<Hold[]> {
    const filter = partnerId === undefined ? {} : { partnerId };
    return this.#holds.find(filter, bounded).sort({ _id: -1 }).limit(LISTED_MAX).toArray();
  }

  async hold(partnerId: string, by: string, since?: Date): Promise<Hold> {
    const hold: Hold = {
      _id: newId('hld'),
      partnerId,
      state: 'held',
      ...(since === undefined ? {} : { since }),
      at: this.#clock.now(),
      by,
    };
    await this.#holds.insertOne(hold);
    return hold;
  }

  /** Lets the partner's work go on; false if nothing of it is held. */
  async release(partnerId: string, by: string): Promise<boolean> {
    const ended = { state: 'released', endedAt: this.#clock.now(), endedBy: by } as const;
    return (await this.#holds.updateMany({ partnerId, state: 'held' }, { $set: ended })).matchedCount > 0;
  }

  /** Ends what is held so far; what the partner sends from now on stays held. False if nothing of it is held. */
  async discard(partnerId: string, by: string): Promise<boolean> {
    const now = this.#clock.now();
    const before = await this.#holds.find({ partnerId, state: 'held' }, bounded).toArray();
    if (before.length === 0) return false;
    // The new hold comes first: cut off in between, everything is still held.
    await this.hold(partnerId, by, now);
    const ended = { state: 'discarded', until: now, endedAt: now, endedBy: by } as const;
    await this.#holds.updateMany({ _id: { $in: before.map(({ _id }) => _id) }, state: 'held' }, { $set: ended });
    return true;
  }
}
