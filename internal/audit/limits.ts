/** Bounds of the audit trail, with the reason for each size. */

/** The newest entries of one request. */
export const TRAIL_SHOWN = 50;
/** Two years: longer than any record is kept. */
export const TRAIL_DAYS = 730;
