/**
 * Counts declined and excess refused requests by address, key and status, so a flood cannot fill
 * the database.
 */
import type { Collection, Db } from 'mongodb';
import { FairShares } from '../fair/shares.ts';
import { DAY_MS, later, type Clock } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import type { Loop, Loops } from '../platform/process/loop.ts';
import { type WriteReply, writeTogether } from '../platform/stores/mongo.ts';

/**
 * How many addresses each window, status and process counts one by one; further ones share one
 * count. Known keys and strangers have a bound each, so that a flood of strangers hides no partner.
 * Partners share theirs, and a partner's keys its part: one that is flooded hides no other. An
 * address that gives way keeps what was counted, so a window may store some five times as many.
 */
export const OVER_LIMIT_ADDRESSES = 200;
/** Ids that each count keeps. */
const OVER_LIMIT_IDS = 20;
/** A partner's counts, or a stranger's, may keep more, while a window's `IDS_TOGETHER` last. */
const IDS_OF_ONE = 1_000;
const IDS_TOGETHER = 4_000;
const REFUSED_WINDOW_MS = 60_000;
const OVER_LIMIT_FLUSH_MS = 5_000;
const OVER_LIMIT_FAILS_AFTER_MS = 60_000;
const WRITE_TRIES = 5;

export const RATE_LIMITED = 'rate_limited';

/** `_id` is `<address> [<key> ][<status> ]<start of window>`. */
export interface RateLimitedRecord {
  readonly _id: string;
  readonly address: string;
  /** Present only with a known key; not in the count of `others`. */
  readonly partnerId?: string;
  readonly keyId?: string;
  readonly test?: true;
  /** Absent for 429. */
  readonly status?: RefusedStatus;
  /** The exceeded limits, in words. */
  readonly limits?: readonly string[];
  readonly windowStart: Date;
  readonly count: number;
  readonly requestIds: readonly string[];
  readonly expiresAt: Date;
}

export const rateLimitedCollection = (db: Db) => db.collection<RateLimitedRecord>(RATE_LIMITED);

type RefusedStatus = 401 | 403;

export interface TurnedAway extends Pick<
  RateLimitedRecord,
  'address' | 'partnerId' | 'keyId' | 'test' | 'status'
> {
  readonly requestId: string;
  readonly limit?: string;
}

interface Counted {
  /** What its record has from the beginning. */
  readonly of: Omit<RateLimitedRecord, '_id' | 'limits' | 'count' | 'requestIds'>;
  count: number;
  readonly limits: Set<string>;
  readonly requestIds: string[];
}

const OTHERS = 'others';

interface Window {
  readonly start: number;
  readonly names: FairShares<string>;
  /** How many ids each count has kept. */
  readonly kept: Map<string, number>;
  spareIds: number;
  /** How many of the spare ids each partner or stranger has. */
  readonly spareOf: Map<string, number>;
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
  readonly #windows = new Map<string, Window>();

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

  add({ requestId, limit, ...away }: TurnedAway): void {
    const { clock, retentionDays } = this.#tools;
    const { status, keyId } = away;
    const windowMs = status === undefined ? this.#tools.windowMs : REFUSED_WINDOW_MS;
    const start = Math.floor(clock.now().getTime() / windowMs) * windowMs;
    const window = this.#windowOf(`${status} ${keyId !== undefined}`, start);
    const name = [away.address, keyId].filter((part) => part !== undefined).join(' ');
    const owner = away.partnerId ?? '';
    if (!window.names.has(name)) window.names.hold(name, [owner, keyId ?? '']);
    const isNamed = window.names.has(name);
    const who = isNamed ? name : OTHERS;
    const windowStart = new Date(start);
    const id = [who, status, windowStart.toISOString()].filter((part) => part !== undefined);
    const counted = this.#counted.get(id.join(' ')) ?? {
      of: {
        ...(isNamed ? away : { address: OTHERS, ...defined({ status }) }),
        windowStart,
        expiresAt: later(windowStart, retentionDays * DAY_MS),
      },
      count: 0,
      limits: new Set(),
      requestIds: [],
    };
    counted.count += 1;
    if (limit !== undefined) counted.limits.add(limit);
    if (keepsId(window, who, isNamed ? owner || name : OTHERS)) counted.requestIds.push(requestId);
    this.#counted.set(id.join(' '), counted);
  }

  #windowOf(kind: string, start: number): Window {
    let window = this.#windows.get(kind);
    if (window?.start !== start) {
      const kept = new Map<string, number>();
      window = {
        start,
        names: new FairShares(
          OVER_LIMIT_ADDRESSES,
          (name) => kept.delete(name),
          undefined,
          'newest',
        ),
        kept,
        spareIds: IDS_TOGETHER,
        spareOf: new Map(),
      };
      this.#windows.set(kind, window);
    }
    return window;
  }

  async close(): Promise<void> {
    await this.#loop.stop();
    await this.#write();
  }

  /** Counts that cannot be written are lost, and the round fails. */
  async #write(): Promise<void> {
    // All processes write in one order, which prevents most deadlocks.
    const counted = [...this.#counted].toSorted(([one], [other]) => (one < other ? -1 : 1));
    this.#counted = new Map();
    for (let [tries, left] = [1, counted]; left.length > 0; tries += 1) {
      const { writeErrors } = await this.#add(left);
      left = writeErrors.map(({ index }) => left[index]!);
      if (tries === WRITE_TRIES && left.length > 0)
        throw new Error(`${left.length} counts were not written: code ${writeErrors[0]?.code}`);
    }
  }

  /** A failed update had no effect: another process inserted first, or won a deadlock. */
  #add(counted: readonly (readonly [string, Counted])[]): Promise<WriteReply> {
    return writeTogether(this.#collection, {
      updates: counted.map(([_id, { of, count, limits, requestIds }]) => ({
        q: { _id },
        u: {
          $inc: { count },
          $push: { requestIds: { $each: requestIds, $slice: IDS_OF_ONE } },
          ...(limits.size === 0 ? {} : { $addToSet: { limits: { $each: [...limits] } } }),
          $setOnInsert: of,
        },
        upsert: true,
      })),
    });
  }
}

function keepsId(window: Window, who: string, owner: string): boolean {
  const kept = window.kept.get(who) ?? 0;
  if (kept >= OVER_LIMIT_IDS) {
    const spare = window.spareOf.get(owner) ?? 0;
    if (spare >= IDS_OF_ONE || window.spareIds === 0) return false;
    window.spareOf.set(owner, spare + 1);
    window.spareIds -= 1;
  }
  window.kept.set(who, kept + 1);
  return true;
}
