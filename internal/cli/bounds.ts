/** Bounds of the operator's commands, with the reason for each size. */

/** One screen. */
export const FIND_DEFAULT = 20;
/** For more, `export` is the right command. */
export const PAGE_MAX = 1_000;

/** Lists are cut, counts are not. */
export const CHANGES_LISTED = 200;
export const ALIKE_LISTED = 20;
/** A higher rate only waits for the relay. */
export const RATE_DEFAULT = 1_000;
/** No store is faster. */
export const RATE_MAX = 1_000_000;

export const PROGRESS_EVERY_MS = 2_000;

export const WHO_MAX = 100;
/** Others may move the request at the same time. */
export const ERASE_TRIES = 5;
