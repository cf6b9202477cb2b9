/** Bounds of the controller, with the reason for each size. */

export const RESYNC_MS = 60_000;
export const ROUND_GAP_MS = 200;
export const ROUND_RETRY = { firstMs: 250, capMs: 5_000 } as const;
export const ROUNDS_FAIL_AFTER_MS = 120_000;

/** When more keys than this would end and none is left, a namespace was probably lost. */
export const ENDED_FREELY = 3;
/** Of the room for keys; the rest is time to remove old keys. */
export const NEARLY_FULL = 0.8;

export const LIST_PAGE = 500;
/** More would fill the memory. */
export const SECRETS_MAX = 100_000;
export const CALL_TIMEOUT_MS = 10_000;
/** A silently dead connection hides a change for at most 13 s. */
export const WATCH_SECONDS = 10;
export const WATCH_GRACE_MS = 3_000;
export const RELIST_MS = 300_000;
export const FOLLOW_BACKOFF = { firstMs: 100, capMs: 10_000 } as const;
/** The leader is then unready, but the keys stay active. */
export const STALE_MS = 60_000;

/**
 * A leader whose renewals fail stops before its lease of 15 s ends: after 9 s, 1 s of back-off and
 * 3 s for a call. Another leads within the promised 20 s: 15 s of lease, 1 s to look, 3 s for a
 * call.
 */
export const RENEW_DEADLINE_MS = 9_000;
export const RENEW_EVERY_MS = 5_000;
export const LEASE_LOOK_EVERY_MS = 1_000;
export const LEASE_RETRY = { firstMs: 250, capMs: 1_000 } as const;
/** A controller that cannot read the lease for this long is not ready. */
export const LEASE_STALE_MS = 30_000;

/** The API server forgets Events after an hour. */
export const EVENT_REPEAT_MS = 600_000;
export const EVENT_BURST = 25;
export const EVENTS_PER_MINUTE = 10;
/** The API server refuses messages above 1,024 bytes. */
export const EVENT_MESSAGE_MAX = 1_000;
