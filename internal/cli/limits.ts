/** Every bound of the operator's commands, with the reason for its size. */

/** Lines `find` prints unless told otherwise: one screen. */
export const FIND_DEFAULT = 20;
/** Most that `find` prints; beyond it `export` is the right command. */
export const PAGE_MAX = 1_000;

/**
 * An open record is late when its time passed this long ago: reconcile looks every 2.5 s and needs
 * 35 s at most.
 */
export const OVERDUE_MS = 300_000;
/**
 * Retries end after three days; what is open for longer than this lives off outages, which someone
 * should know.
 */
export const OPEN_TOO_LONG_MS = 4 * 86_400_000;
/** Findings of one kind that `audit` lists; all are counted. */
export const FINDINGS_LISTED = 20;
/**
 * What moved while it was looked at is looked at again after this, before it is called a finding.
 */
export const SECOND_LOOK_MS = 1_000;

/**
 * Bytes of a notification: servers return the headers or the whole mail, which has some 10 kB. One
 * made to be slow takes a fifth of a second.
 */
export const INPUT_MAX_BYTES = 262_144;
/** Longest that standard input may take to end. */
export const INPUT_TIMEOUT_MS = 30_000;

/** Requests or accounts that a command which changes many lists; all are counted. */
export const CHANGES_LISTED = 200;
/** Requests that `erase` names because they have the EIN of what it erased. */
export const ALIKE_LISTED = 20;
/** Requests a second that a command changes unless told otherwise: more only wait for the relay. */
export const RATE_DEFAULT = 1_000;
/** Most that `--rate` takes: more than any store does. */
export const RATE_MAX = 1_000_000;

/** How often a long walk says how far it is. */
export const PROGRESS_EVERY_MS = 2_000;

/**
 * Open requests of a partner that are counted; an exact figure beyond it would read the index for
 * seconds.
 */
export const OPEN_COUNTED = 100_000;

/** Characters of a value: more than any that is stored. */
export const TEXT_MAX = 1_000;
/** Characters of `--why` and `--as`. */
export const WHY_MAX = 500;
export const WHO_MAX = 100;
/** Times that `account correct-email` reopens a request which others move meanwhile. */
export const REOPEN_TRIES = 5;
