/**
 * Bounded reads for people: each read has a deadline, and a walk over a whole collection holds one
 * page at a time.
 */
import { MongoServerError, type Collection, type Document, type Filter } from 'mongodb';
import { idLater, timeOfId } from './ids.ts';

/**
 * Longest one read may take on the server; below the client's 10 s, so that the answer says why.
 */
export const READ_DEADLINE_MS = 8_000;

/** Documents in one page of a walk: some 100 KB. */
export const WALK_PAGE = 500;

/** What every read takes. */
export const bounded = { maxTimeMS: READ_DEADLINE_MS } as const;

/** A read that may be made narrower gives up after this. */
const NARROWED_AFTER_MS = 2_000;
/** A stretch of time that was too long to read is cut into so many. */
const NARROWED_BY = 16;
/** No stretch of time is cut shorter; such a read takes as long as any. */
const NARROWEST_MS = 1_000;
/** Pages that the next read should find to choose from: enough that most pages are full. */
const PAGES_AHEAD = 4;

/**
 * All documents that match, in the order of ids, which begin with their time. Each read starts
 * where the last one ended, so a walk of hours keeps nothing open on the server. It begins behind
 * the id `after` and ends before `until`; as parts of `filter` these two would be further bounds of
 * the same field, which mislead FerretDB's planner.
 *
 * Not every store takes the order of a sort from an index: FerretDB reads all that match to give
 * the next page. So a read also ends at an id, as far ahead as the last pages were dense. A page
 * may hold less than `size`.
 */
export async function* pagesOf<T extends { readonly _id: string }>(
  collection: Collection<T>,
  filter: Filter<T>,
  options: {
    readonly size?: number;
    readonly projection?: Document;
    readonly after?: string | undefined;
    readonly until?: string | undefined;
  },
): AsyncGenerator<T[]> {
  const { size = WALK_PAGE, after: from, until, ...read } = options;
  let after = from;
  let aheadMs = Infinity;
  for (;;) {
    const step = after === undefined ? undefined : idLater(after, aheadMs);
    const upTo = step === undefined || (until !== undefined && step >= until) ? undefined : step;
    const narrower = aheadMs > NARROWEST_MS;
    const reading = collection
      .find({ $and: [filter, idRange(after, upTo, until)] } as Filter<T>, {
        ...read,
        maxTimeMS: narrower ? NARROWED_AFTER_MS : READ_DEADLINE_MS,
      })
      .sort({ _id: 1 })
      .limit(size)
      // In one answer: the server would send the first hundred, and keep a cursor for the others.
      .batchSize(size)
      .toArray();
    const page = await (narrower ? unlessTooLong(reading) : reading);
    if (page === undefined) {
      after ??= await beforeFirst(collection);
      aheadMs = Math.max(NARROWEST_MS, Math.min(aheadMs, Date.now() - timeMs(after)) / NARROWED_BY);
      continue;
    }
    const [first, last] = [page[0]?._id, page.at(-1)?._id];
    if (page.length > 0) yield page as T[];
    if (page.length === size) {
      after = last;
      aheadMs = Math.max(1, timeMs(last) - timeMs(first)) * PAGES_AHEAD;
    } else if (upTo === undefined) return;
    else {
      after = upTo;
      aheadMs *= 2;
    }
  }
}

function idRange(
  after: string | undefined,
  upTo: string | undefined,
  until: string | undefined,
): Document {
  const from = after === undefined ? {} : { $gt: after };
  const to = upTo === undefined ? (until === undefined ? {} : { $lt: until }) : { $lte: upTo };
  const range = { ...from, ...to };
  return Object.keys(range).length === 0 ? {} : { _id: range };
}

/** An id before all that the collection holds. */
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

/** Whether the server gave up at the `maxTimeMS` of a read. */
export function tookTooLong(error: unknown): boolean {
  return error instanceof MongoServerError && error.code === MAX_TIME_EXPIRED;
}

/** Undefined where the server gave up on a read that can be asked for less. */
export function unlessTooLong<T>(reading: Promise<T>): Promise<T | undefined> {
  return reading.catch((error: unknown) => {
    if (!tookTooLong(error)) throw error;
    return undefined;
  });
}
