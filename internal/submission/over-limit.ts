/** Counts declined and excess refused requests by address, so a flood cannot fill the database. */
import type { Collection, Db } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import type { Loop, Loops } from '../platform/loop.ts';
import { writeTogether } from '../platform/mongo.ts';

/** Of a window, status and process; further addresses share one count. */
export const OVER_LIMIT_ADDRESSES = 200;
const OVER_LIMIT_IDS = 20;
const REFUSED_WINDOW_MS = 60_000;
const OVER_LIMIT_FLUSH_MS = 5_000;
const OVER_LIMIT_FAILS_AFTER_MS = 60_000;

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
  /** What its record has from the beginning. */
  readonly of: Pick<RateLimitedRecord, 'address' | 'status' | 'windowStart' | 'expiresAt'>;
  count: number;
  readonly requestIds: string[];
}

const OTHERS = 'others';

interface Window {
  readonly start: number;
  readonly addresses: Set<string>;
}

interface OverLimitTools {
  readonly db: Db;
  readonly windowMs: number;
  readonly retentionDays: number;
  readonly clock: Clock;
  readonly loops: Pick<Loops<'over_limit'>, 'start'>;
}

export class OverLimitRecorder {
  readonly #tools: OverLimitTools;
  readonly #collection: Collection<RateLimitedRecord>;
  readonly #loop: Loop;
  #counted = new Map<string, Counted>();
  readonly #windows = new Map<RefusedStatus | undefined, Window>();

  constructor(tools: OverLimitTools) {
    this.#tools = tools;
    this.#collection = rateLimitedCollection(tools.db);
    this.#loop = tools.loops.start({
      name: 'over_limit',
      everyMs: OVER_LIMIT_FLUSH_MS,
      failsAfterMs: OVER_LIMIT_FAILS_AFTER_MS,
      run: () => this.#write(),
    });
  }

  add(address: string, requestId: string, status?: RefusedStatus): void {
    const { clock, retentionDays } = this.#tools;
    const windowMs = status === undefined ? this.#tools.windowMs : REFUSED_WINDOW_MS;
    const windowStart = new Date(Math.floor(clock.now().getTime() / windowMs) * windowMs);
    const expiresAt = later(windowStart, retentionDays * DAY_MS);
    const who = this.#isNamed(address, status, windowStart.getTime()) ? address : OTHERS;
    const id = `${who} ${status === undefined ? '' : `${status} `}${windowStart.toISOString()}`;
    const counted = this.#counted.get(id) ?? {
      of: { address: who, ...defined({ status }), windowStart, expiresAt },
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

  async close(): Promise<void> {
    await this.#loop.stop();
    await this.#write();
  }

  /** Counts that cannot be written are lost. */
  async #write(): Promise<void> {
    if (this.#counted.size === 0) return;
    const counted = this.#counted;
    this.#counted = new Map();
    await writeTogether(this.#collection, {
      updates: [...counted].map(([_id, { of, count, requestIds }]) => ({
        q: { _id },
        u: {
          $inc: { count },
          $push: { requestIds: { $each: requestIds, $slice: OVER_LIMIT_IDS } },
          $setOnInsert: of,
        },
        upsert: true,
      })),
    });
  }
}
