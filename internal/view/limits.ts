/** Bounds of what is shown and searched by. */

/** Counting more would read the index for seconds. */
export const OPEN_COUNTED = 100_000;
/** Of what is searched by: no stored value is longer. */
export const TEXT_MAX = 1_000;
/** Of a reason in the trail. */
export const WHY_MAX = 500;
