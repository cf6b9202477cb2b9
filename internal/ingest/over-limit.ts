/** Records over-limit requests as counts per address and window, so that a flood cannot fill the database. */
import type { Collection } from 'mongodb';
import { later, type Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { updateTogether } from '../platform/mongo.ts';
import { OVER_LIMIT_ADDRESSES, OVER_LIMIT_DEADLINE_MS, OVER_LIMIT_FLUSH_MS, OVER_LIMIT_IDS } from './limits.ts';

/** One document of `rate_limited`; `_id` is `<address> <start of window>`. */
export interface RateLimitedRecord {
  readonly _id: string;
  readonly address: string;
  readonly windowStart: Date;
  readonly count: number;
  /** The first `OVER_LIMIT_IDS` request ids. */
  readonly requestIds: readonly string[];
  readonly expiresAt: Date;
}

interface Counted {
  readonly address: string;
  readonly windowStart: Date;
  count: number;
  readonly requestIds: string[];
}

const DAY_MS = 86_400_000;
/** Stands for all addresses beyond the bound. */
const OTHERS = 'others';

export class OverLimitRecorder {
  readonly #collection: Collection<RateLimitedRecord>;
  readonly #windowMs: number;
  readonly #retentionDays: number;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #timer: NodeJS.Timeout;
  #counted = new Map<string, Counted>();
  #flushing = Promise.resolve();

  constructor(options: {
    readonly collection: Collection<RateLimitedRecord>;
    readonly windowMs: number;
    readonly retentionDays: number;
    readonly clock: Clock;
    readonly log: Logger;
  }) {
    this.#collection = options.collection;
    this.#windowMs = options.windowMs;
    this.#retentionDays = options.retentionDays;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#timer = setInterval(() => void this.flush(), OVER_LIMIT_FLUSH_MS);
  }

  add(address: string, requestId: string): void {
    const windowStart = new Date(Math.floor(this.#clock.now().getTime() / this.#windowMs) * this.#windowMs);
    const full = this.#counted.size >= OVER_LIMIT_ADDRESSES;
    const id = (who: string): string => `${who} ${windowStart.toISOString()}`;
    const who = full && !this.#counted.has(id(address)) ? OTHERS : address;
    const counted = this.#counted.get(id(who)) ?? { address: who, windowStart, count: 0, requestIds: [] };
    counted.count += 1;
    if (counted.requestIds.length < OVER_LIMIT_IDS) counted.requestIds.push(requestId);
    this.#counted.set(id(who), counted);
  }

  /** Writes what has been counted. What a failed write loses is a count of refusals, and is told. */
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
        [...counted].map(([_id, { address, windowStart, count, requestIds }]) => ({
          q: { _id },
          u: {
            $inc: { count },
            $push: { requestIds: { $each: requestIds, $slice: OVER_LIMIT_IDS } },
            $setOnInsert: { address, windowStart, expiresAt: later(windowStart, this.#retentionDays * DAY_MS) },
          },
          upsert: true,
        })),
        OVER_LIMIT_DEADLINE_MS,
      );
    } catch (error) {
      this.#log.warn({ err: error, addresses: counted.size }, 'counts of over-limit requests could not be written');
    }
  }
}
