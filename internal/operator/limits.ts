/** Every bound of the operator's commands, with the reason for its size. */

/** Longest one read may take on the server; below the client's 10 s, so that the answer says why. */
export const READ_DEADLINE_MS = 8_000;
/** Records in one page of a walk over all of them: some 100 KB without bodies. */
export const WALK_PAGE = 500;
/** The same with bodies of up to 65,000 bytes each: 6.5 MB at worst. */
export const BODY_PAGE = 100;

/** Lines `find` prints unless told otherwise: one screen. */
export const FIND_DEFAULT = 20;
/** Most that `find` prints and `retry --state` opens at once; beyond it `export` is the right command. */
export const PAGE_MAX = 1_000;
/** Keys that `keys list` prints. */
export const KEYS_MAX = 10_000;
/** Ids suggested for one that is not there. */
export const SUGGESTIONS = 3;
/** Characters an id must have before what follows is guessed: `req_` and the ten that hold the time. */
export const SUGGEST_FROM_LENGTH = 14;

/** An open record is late when its time passed this long ago: reconcile looks every 2.5 s and needs 35 s at most. */
export const OVERDUE_MS = 300_000;
/** Retries end after three days; what is open for longer than this lives off outages, which someone should know. */
export const OPEN_TOO_LONG_MS = 4 * 86_400_000;
/** Findings of one kind that `audit` lists; all are counted. */
export const FINDINGS_LISTED = 20;
/** What moved while it was looked at is looked at again after this, before it is called a finding. */
export const SECOND_LOOK_MS = 1_000;

/** Lines `erase` lists; all are counted. */
export const ERASE_LISTED = 200;
/** Records after which `erase` says that it is alive. */
export const ERASE_PROGRESS = 50_000;

/** Entries of the operators' trail that `show` prints. */
export const TRAIL_SHOWN = 50;
/** Two years: longer than any record it is about is kept. */
export const TRAIL_DAYS = 730;
/** Characters of `--why` and `--as`. */
export const WHY_MAX = 500;
export const WHO_MAX = 100;
