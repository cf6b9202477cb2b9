/** Every bound of the operators' trail, with the reason for its size. */

/** Entries of one request that are read: the newest, more than anyone reads. */
export const TRAIL_SHOWN = 50;
/** Two years: longer than any record it is about is kept. */
export const TRAIL_DAYS = 730;
/** Another operator may take the next place in the chain first; each time one of them gets in. */
export const LINK_TRIES = 100;
/** Before the next try. It grows, because a busy database ends a write only after several pauses of those who wait. */
export const LINK_BACKOFF = { firstMs: 25, capMs: 1_000, jitter: 1 };
