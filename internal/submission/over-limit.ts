/** Counts declined and excess refused requests by address, so a flood cannot fill the database. */
import type { Collection, Db } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import type { Logger } from '../platform/log.ts';
import { updateTogether } from '../platform/mongo.ts';
import {
  OVER_LIMIT_ADDRESSES,
  OVER_LIMIT_FLUSH_MS,
  OVER_LIMIT_IDS,
  REFUSED_WINDOW_MS,
} from './limits.ts';

export const RATE_LIMITED = 'rate_limited';

/** `_id` is `<address> [<status> ]<start of window>`. */
export interface RateLimitedRecord {
  readonly _id: string;
  readonly address: string;
  /** Absent for 429. */
  readonly status?: RefusedStatus;
  readonly windowStart: Date;
  readonly count: number;
  readonly requestIds: readonly string[];
  readonly expiresAt: Date;
}

export const rateLimitedCollection = (db: Db) => db.collection<RateLimitedRecord>(RATE_LIMITED);

type RefusedStatus = 401 | 403;

interface Counted {
  readonly address: string;
  readonly status: RefusedStatus | undefined;
  readonly windowStart: Date;
  count: number;
  readonly requestIds: string[];
}

const OTHERS = 'others';

interface Window {
  readonly start: number;
  readonly addresses: Set<string>;
}

export interface OverLimitTools {
  readonly db: Db;
  readonly windowMs: number;
  readonly retentionDays: number;
  readonly clock: Clock;
  readonly log: Logger;
}

export class OverLimitRecorder {
  readonly #tools: OverLimitTools;
  readonly #collection: Collection<RateLimitedRecord>;
  readonly #timer: NodeJS.Timeout;
  #counted = new Map<string, Counted>();
  readonly #windows = new Map<RefusedStatus | undefined, Window>();
  #flushing = Promise.resolve();

  constructor(tools: OverLimitTools) {
    this.#tools = tools;
    this.#collection = rateLimitedCollection(tools.db);
    this.#timer = setInterval(() => void this.flush(), OVER_LIMIT_FLUSH_MS);
  }

  add(address: string, requestId: string, status?: RefusedStatus): void {
    const { clock } = this.#tools;
    const windowMs = status === undefined ? this.#tools.windowMs : REFUSED_WINDOW_MS;
    const windowStart = new Date(Math.floor(clock.now().getTime() / windowMs) * windowMs);
    const who = this.#isNamed(address, status, windowStart.getTime()) ? address : OTHERS;
    const id = `${who} ${status === undefined ? '' : `${status} `}${windowStart.toISOString()}`;
    const counted = this.#counted.get(id) ?? {
      address: who,
      status,
      windowStart,
      count: 0,
      requestIds: [],
    };
    counted.count += 1;
    if (counted.requestIds.length < OVER_LIMIT_IDS) counted.requestIds.push(requestId);
    this.#counted.set(id, counted);
  }

  /** A flood from many addresses has one count for all beyond the bound. */
  #isNamed(address: string, status: RefusedStatus | undefined, start: number): boolean {
    let window = this.#windows.get(status);
    if (window?.start !== start) {
      window = { start, addresses: new Set() };
      this.#windows.set(status, window);
    }
    if (window.addresses.size < OVER_LIMIT_ADDRESSES) window.addresses.add(address);
    return window.addresses.has(address);
  }

  flush(): Promise<void> {
    this.#flushing = this.#flushing.then(() => this.#write());
    return this.#flushing;
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await this.flush();
  }

  async #write(): Promise<void> {
    if (this.#counted.size === 0) return;
    const counted = this.#counted;
    this.#counted = new Map();
    try {
      await updateTogether(
        this.#collection,
        [...counted].map(([_id, { address, status, windowStart, count, requestIds }]) => ({
          q: { _id },
          u: {
            $inc: { count },
            $push: { requestIds: { $each: requestIds, $slice: OVER_LIMIT_IDS } },
            $setOnInsert: {
              address,
              ...defined({ status }),
              windowStart,
              expiresAt: later(windowStart, this.#tools.retentionDays * DAY_MS),
            },
          },
          upsert: true,
        })),
      );
    } catch (error) {
      this.#tools.log.warn(
        { err: error, addresses: counted.size },
        'counts of requests turned away could not be written',
      );
    }
  }
}
