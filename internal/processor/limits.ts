/** Every bound of the background work, with the reason for its size. */

/** How often a claim is renewed while work goes on: three tries within its 45 s. */
export const RENEW_EVERY_MS = 15_000;
/** A claim not confirmed for this long is treated as lost; below 45 s by more than a renewal may take. */
export const CLAIM_TRUSTED_MS = 35_000;

/**
 * Back-off of a failing attempt: 30 s, 1 min, 2, 4, 8, 16, 32 min, 1 h 4, 2 h 8, then every 4 h.
 * The first nine delays add up to 4 h 15 min; 17 more of 4 h make 72 h 15 min: three days, then a dead letter.
 */
export const ATTEMPT_BACKOFF = { firstMs: 30_000, capMs: 14_400_000, jitter: 0.2 } as const;
export const MAX_ATTEMPTS = 27;
/** After an ambiguous hand-over the mail is sent again at most twice: three mails at worst, each counted. */
export const MAX_AMBIGUOUS = 3;
/** A fault of our own (sender refused, our settings) is looked at this often, without counting attempts. */
export const OURS_RETRY_MS = 900_000;
/** A parked record comes up again after this; the worker itself resumes as soon as a probe succeeds. */
export const PARKED_RETRY_MS = 5_000;

/** How often writing down that a mail went out is tried while the database is away. */
export const COMPLETE_RETRY = { firstMs: 100, capMs: 2_000 } as const;

/** How an outage is probed: quickly at first, then every five seconds. */
export const PROBE_BACKOFF = { firstMs: 250, capMs: 5_000, jitter: 0.2 } as const;
/** Longest one probe may take. */
export const PROBE_DEADLINE_MS = 15_000;

/** Reconcile runs this often; with the 15 s to the first look and 15 s of grace a lost hint heals within 35 s. */
export const RECONCILE_EVERY_MS = 2_500;
/** Records looked at in one round. */
export const RECONCILE_PAGE = 1_000;
/** Above this many waiting jobs, of up to 50 records, workers have enough to do; the rest stays due and comes up later. */
export const RECONCILE_MAX_WAITING = 100;
/** After the first sight of a record that nobody ever claimed, withdrawal gets this long before it is queued. */
export const FIRST_SIGHT_GRACE_MS = 15_000;
/** A record that was queued again is looked at once more after this, in case that hint is lost as well. */
export const REQUEUED_AGAIN_MS = 30_000;

/** A worker that has taken none for this long, although jobs were seen waiting for as long, is not live. */
export const PROGRESS_DEADLINE_MS = 60_000;

/** How long an activation link works. */
export const ACTIVATION_MS = 7 * 86_400_000;
