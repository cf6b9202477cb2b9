/** Reads with a deadline, by ranges of ids: the newest first, or a walk over a collection. */
import {
  MongoServerError,
  type Collection,
  type Document,
  type Filter,
  type FindOptions,
} from 'mongodb';
import { defined } from '../process/defined.ts';
import { firstIdAt, idLater, timeOfId } from './ids.ts';

/** Below the client's 10 s, so that the server's error gives the reason. */
export const READ_DEADLINE_MS = 8_000;

/** A page has about 100 KB. */
export const WALK_PAGE = 500;

export const bounded = { maxTimeMS: READ_DEADLINE_MS } as const;

/** A read that takes longer is repeated over a narrower range. */
const NARROWED_AFTER_MS = 2_000;
const NARROWED_BY = 16;
/** A read of this range or less gets the full deadline. */
const NARROWEST_MS = 1_000;
/** The next read covers this many times the time span of the last full page. */
const PAGES_AHEAD = 4;

/**
 * Reads all matches in the order of ids, after the id `after` and up to `until`. Each page is a
 * read of its own, so no cursor stays open. `after` and `until` are not in `filter`, because two
 * bounds on one field mislead FerretDB's planner.
 *
 * FerretDB does not sort by an index, so it would read all matches for each page. Therefore each
 * read also has an upper id, taken from the density of the last page: if that spanned 10 s, the
 * next read covers 40 s. A page may hold fewer than `size` documents.
 */
export async function* pagesOf<T extends { readonly _id: string }>(
  collection: Collection<T>,
  filter: Filter<T>,
  options: {
    readonly size?: number;
    readonly projection?: Document;
    readonly after?: string | undefined;
    readonly until?: string | undefined;
  } & Pick<FindOptions, 'readPreference'>,
): AsyncGenerator<T[]> {
  const { size = WALK_PAGE, after: from, until, ...read } = options;
  let after = from;
  let aheadMs = Infinity;
  for (;;) {
    const step = after === undefined ? undefined : idLater(after, aheadMs);
    const upTo = step === undefined || (until !== undefined && until <= step) ? until : step;
    const range = defined({ $gt: after, $lte: upTo });
    const bounds = Object.keys(range).length === 0 ? [] : [{ _id: range }];
    const narrower = aheadMs > NARROWEST_MS;
    const page = await collection
      .find({ $and: [filter, ...bounds] } as Filter<T>, {
        ...read,
        maxTimeMS: narrower ? NARROWED_AFTER_MS : READ_DEADLINE_MS,
      })
      .sort({ _id: 1 })
      .limit(size)
      // Without this the server would send 100 documents and keep a cursor for the rest.
      .batchSize(size)
      .toArray()
      .catch((error: unknown) => {
        if (narrower && tookTooLong(error)) return undefined;
        throw error;
      });
    if (page === undefined) {
      after ??= await beforeFirst(collection);
      aheadMs = Math.max(NARROWEST_MS, Math.min(aheadMs, Date.now() - timeMs(after)) / NARROWED_BY);
      continue;
    }
    const first = page[0]?._id;
    const last = page.at(-1)?._id;
    if (page.length > 0) yield page as T[];
    if (page.length === size) {
      after = last;
      aheadMs = Math.max(1, timeMs(last) - timeMs(first)) * PAGES_AHEAD;
    } else if (upTo === until) return;
    else {
      after = upTo;
      aheadMs *= 2;
    }
  }
}

/** A range that holds a page of a busy partner; FerretDB sorts it in some 10 ms. */
const NEWEST_RANGE_MS = 10_000;
const WIDENED_BY = 4;
const NEWEST_NARROWED_AFTER_MS = 60;
/** With less time left, no query is made. */
const LEAST_READ_MS = 20;
/** Clocks of processes that make ids differ by less. */
const AHEAD_MS = 3_600_000;

/**
 * Calls `read` with ranges of ids, from below `before` down to `from`, until it resolves to true.
 * Each range is as wide as the database can read in time. Returns the `before` to continue with,
 * also if time ran out; undefined at the end. Rejects if nothing could be read.
 */
export async function rangesBack(
  {
    prefix,
    before,
    from = firstIdAt(prefix, new Date(0)),
    withinMs,
    firstMs,
    narrowedAfterMs,
  }: {
    /** The prefix of the ids. */
    readonly prefix: string;
    readonly before?: string | undefined;
    /** The lowest id, inclusive. */
    readonly from?: string | undefined;
    /** Time for all ranges together; the server ends each read by then. */
    readonly withinMs: number;
    /** How wide the first range is. */
    readonly firstMs: number;
    /** A range that takes longer is read again in parts. */
    readonly narrowedAfterMs: number;
  },
  read: (
    range: { readonly $gte: string; readonly $lt: string },
    maxTimeMS: number,
  ) => Promise<boolean>,
): Promise<string | undefined> {
  const endsAt = performance.now() + withinMs;
  const nowMs = Date.now();
  let below = before ?? firstIdAt(prefix, new Date(nowMs + AHEAD_MS));
  let backMs = firstMs;
  /** Down to this id, a wider range would only fail again. */
  let denseTo: string | undefined;
  let isFirst = true;
  while (below > from) {
    const leftMs = Math.floor(endsAt - performance.now());
    if (leftMs < (isFirst ? 0 : LEAST_READ_MS)) return below;
    const start = firstIdAt(prefix, new Date(Math.min(timeMs(below), nowMs) - backMs));
    const lowest = start > from ? start : from;
    const isNarrowest = backMs <= NARROWEST_MS;
    try {
      const maxTimeMS = Math.max(1, isNarrowest ? leftMs : Math.min(leftMs, narrowedAfterMs));
      const isEnough = await read({ $gte: lowest, $lt: below }, maxTimeMS);
      below = lowest;
      if (isEnough) return below;
      if (denseTo === undefined || below <= denseTo) backMs *= WIDENED_BY;
      isFirst = false;
    } catch (error) {
      if (!tookTooLong(error) || (isNarrowest && isFirst)) throw error;
      if (isNarrowest) return below;
      backMs = Math.max(NARROWEST_MS, Math.min(backMs, nowMs - timeMs(from)) / NARROWED_BY);
      if (denseTo === undefined || lowest < denseTo) denseTo = lowest;
    }
  }
  return undefined;
}

/**
 * Reads at most `size` matches, newest id first, from below `before` down to `from`. `next` is the
 * `before` to continue with; absent after the last match. If time runs out, fewer are found,
 * perhaps none; rejects if nothing could be read.
 *
 * FerretDB sorts all matches of a query, and with one bound it uses the index of ids; so each query
 * has both.
 */
export async function newestOf<T extends { readonly _id: string }>(
  collection: Collection<T>,
  filter: Filter<T>,
  {
    size,
    prefix,
    before,
    from,
    withinMs,
    ...options
  }: {
    readonly size: number;
  } & Pick<Parameters<typeof rangesBack>[0], 'prefix' | 'before' | 'from' | 'withinMs'> &
    Pick<FindOptions, 'hint' | 'projection' | 'readConcern'>,
): Promise<{ readonly found: T[]; readonly next?: string }> {
  const found: T[] = [];
  const next = await rangesBack(
    {
      prefix,
      before,
      from,
      withinMs,
      firstMs: NEWEST_RANGE_MS,
      narrowedAfterMs: NEWEST_NARROWED_AFTER_MS,
    },
    async (range, maxTimeMS) => {
      const page = await collection
        .find({ ...filter, _id: range } as Filter<T>, { ...options, maxTimeMS })
        .sort({ _id: -1 })
        .limit(size - found.length)
        .batchSize(size)
        .toArray();
      found.push(...(page as T[]));
      return found.length >= size;
    },
  );
  return { found, ...defined({ next: found.length >= size ? found.at(-1)?._id : next }) };
}

async function beforeFirst<T extends { readonly _id: string }>(
  collection: Collection<T>,
): Promise<string | undefined> {
  const first = await collection.findOne(
    {},
    { sort: { _id: 1 }, projection: { _id: 1 }, ...bounded },
  );
  return first === null ? undefined : idLater(first._id, -1);
}

const timeMs = (id: string | undefined): number =>
  id === undefined ? 0 : (timeOfId(id)?.getTime() ?? 0);

const MAX_TIME_EXPIRED = 50;

export function tookTooLong(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === MAX_TIME_EXPIRED;
}

/** Returns undefined if a read's time has passed; throws any other error. */
export function unlessTooLong(error: unknown): undefined {
  if (!tookTooLong(error)) throw error;
}

/** The error for a read of several queries; for one query the driver has its own. */
export function tooLong(): MongoServerError {
  return new MongoServerError({ message: 'reading took too long', code: MAX_TIME_EXPIRED });
}
