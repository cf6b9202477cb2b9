/** Bounds of the console, with the reason for each size. */

/** The first page refreshes as often. */
export const READ_EVERY_MS = 10_000;
/** Three missed rounds: what is shown is then too old to act on. */
export const READINGS_FAIL_AFTER_MS = 35_000;
/** An hour of rounds. */
export const HISTORY_ROUNDS = 360;
/** Autoscaled ingest and processors together stay far below. */
export const PODS_MAX = 200;
/** A pod that answers later is shown as one that does not answer. */
export const POD_TIMEOUT_MS = 3_000;
/** An ingest with 100 partners has about 100 KB of metrics. */
export const POD_ANSWER_BYTES = 2_000_000;

/** As long as the first page's table counts; a day of a busy partner is too much to group. */
export const PARTNER_SHOWN_MS = 3_600_000;

export const FOUND_PAGE = 50;
export const TRAIL_PAGE = 50;
/** Kinds of dead letters on the first page; the page of dead letters has all. */
export const DEAD_KINDS_SHOWN = 10;

/** The longest form: ten fields of 1,000 characters, each of which may take nine bytes. */
export const FORM_BYTES = 131_072;
/** Searches and reveals of one person: more are no work of support. */
export const SEARCHES_A_MINUTE = 60;

/** A working day; then the provider is asked again. */
export const SESSION_SECONDS = 8 * 3_600;
/** From the click to the return from the provider. */
export const LOGIN_SECONDS = 600;
/** Of the OpenID provider's answers. */
export const PROVIDER_TIMEOUT_S = 5;
