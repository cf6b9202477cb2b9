/** Every bound of the controller, with the reason for its size. */

/** Even when nothing says so, stored keys are compared with the Secrets this often. */
export const RESYNC_MS = 60_000;
/**
 * Rounds start at least this far apart, so that a Secret changed a hundred times a second costs
 * five rounds, not a hundred.
 */
export const ROUND_GAP_MS = 200;
/** After a round that failed: MongoDB or the folder is away. */
export const FAILURE_BACKOFF = { firstMs: 250, capMs: 5_000, jitter: 0.2 } as const;

/**
 * Once more keys than this, and more than half of all, end within ten minutes, most often by
 * mistake, further ends wait.
 */
export const ENDED_FREELY = 3;
/** While removals are deferred, an operator's confirmation is seen this late. */
export const DEFERRED_LOOK_MS = 2_000;
/** Keys that are not removed. Each ingest holds all of them in memory, at some 500 bytes each. */
export const MAX_KEYS = 100_000;

/** Secrets in one page of a list: at most 1 MB each, though ten lines are usual. */
export const LIST_PAGE = 500;
/** Pages of one list: 100,000 Secrets. More are refused, loudly, instead of filling the memory. */
export const LIST_MAX_PAGES = 200;
/** One call for Secrets or Events. */
export const CALL_TIMEOUT_MS = 10_000;
/**
 * A watch is renewed this often, so a connection that died silently hides a change for 13 s at
 * most.
 */
export const WATCH_SECONDS = 10;
export const WATCH_GRACE_MS = 3_000;
/** Even when every watch goes well, all Secrets are listed again this often. */
export const RELIST_MS = 300_000;
/** Between watches, and between lists that fail. */
export const FOLLOW_BACKOFF = { firstMs: 100, capMs: 10_000, jitter: 0.2 } as const;
/** Watches that fail one after the other before the Secrets are listed again instead. */
export const WATCH_MAX_FAILURES = 3;
/** Secrets not known to be current for this long make the leader unready; the keys stay active. */
export const STALE_MS = 60_000;

/**
 * The lease of 15 s (`LEASE_MS`). A leader that cannot renew it stops 12 s after the last renewal
 * it sent; another takes over 15 s after that renewal, plus 1 s (its look) and 3 s (its call):
 * below the 20 s promised.
 */
export const RENEW_DEADLINE_MS = 12_000;
export const RENEW_EVERY_MS = 5_000;
export const RENEW_AGAIN_MS = 1_000;
export const LEASE_LOOK_EVERY_MS = 1_000;
/** A standby that could not read the lease for this long is not ready. */
export const LEASE_STALE_MS = 30_000;

/** A problem that stays is told again this often; the API server forgets Events after an hour. */
export const EVENT_REPEAT_MS = 600_000;
/** One that comes and goes is told at most this often. */
export const EVENT_MIN_GAP_MS = 30_000;
/** Events written in a row, and how many more a minute after that; the rest waits for its turn. */
export const EVENT_BURST = 25;
export const EVENTS_PER_MINUTE = 10;
/** Longer messages are refused by the API server at 1,024 bytes. */
export const EVENT_MESSAGE_MAX = 1_000;
