/** Bounds of what is shown, with the reason for each size. */

/** Reconcile needs at most 35 s, so a record is overdue after this. */
export const OVERDUE_MS = 300_000;
/** Retries end after three days. */
export const OPEN_TOO_LONG_MS = 4 * 86_400_000;
export const FINDINGS_LISTED = 20;
/** The settings allow no retention below a day. */
export const SHORTEST_RETENTION_MS = 86_400_000;
/** Work in progress settles within this time. */
export const SECOND_LOOK_MS = 1_000;

/** By e-mail address and by EIN each. */
export const OTHERS_LISTED = 10;
/** The beginning of a malformed body shows what kind of thing it is. */
export const SENT_SHOWN = 240;
/** More kinds of faults than a person reads. */
export const TALLIES = 1_000;
/** Counting more would read the index for seconds. */
export const OPEN_COUNTED = 100_000;

/** Of what is searched by: no stored value is longer. */
export const TEXT_MAX = 1_000;
/** Of a reason in the trail. */
export const WHY_MAX = 500;
