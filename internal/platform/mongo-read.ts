/** Bounded reads for people: each read has a deadline, and a walk over a whole collection holds one page at a time. */
import type { Collection, Document, Filter } from 'mongodb';

/** Longest one read may take on the server; below the client's 10 s, so that the answer says why. */
export const READ_DEADLINE_MS = 8_000;

/** Documents in one page of a walk: some 100 KB. */
export const WALK_PAGE = 500;

/** What every read takes. */
export const bounded = { maxTimeMS: READ_DEADLINE_MS } as const;

/**
 * All documents that match, in the order of ids, which begin with their time. Each read starts where the last one ended,
 * so a walk of hours keeps nothing open on the server. It begins behind the id `after`.
 */
export async function* pagesOf<T extends { readonly _id: string }>(
  collection: Collection<T>,
  filter: Filter<T>,
  options: { readonly size?: number; readonly projection?: Document; readonly after?: string | undefined },
): AsyncGenerator<T[]> {
  const { size = WALK_PAGE, after: from, ...read } = options;
  let after = from;
  for (;;) {
    const beyond = after === undefined ? {} : { _id: { $gt: after } };
    const page = (await collection
      .find({ $and: [filter, beyond] } as Filter<T>, { ...read, ...bounded })
      .sort({ _id: 1 })
      .limit(size)
      .toArray()) as T[];
    if (page.length > 0) yield page;
    if (page.length < size) return;
    after = page.at(-1)?._id;
  }
}
