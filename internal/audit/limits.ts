/** Every bound of the operators' trail, with the reason for its size. */

/** Entries of one request that are read: the newest, more than anyone reads. */
export const TRAIL_SHOWN = 50;
/** Two years: longer than any record it is about is kept. */
export const TRAIL_DAYS = 730;
