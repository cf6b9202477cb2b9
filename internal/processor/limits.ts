/** Bounds of the background work, with the reason for each size. */
import { mailerLimits } from '../mail/mailer.ts';

/** Allows three tries in a claim's 45 s. */
export const RENEW_EVERY_MS = 15_000;
/** Leaves 10 s of a claim for a slow renewal. */
export const CLAIM_TRUSTED_MS = 35_000;

/** A confirmation this fresh is enough for an e-mail. */
export const CLAIM_FRESH_MS = 2_000;

/** A pause is this share of the total back-off, within bounds. */
interface BackOff {
  readonly share: number;
  readonly firstMs: number;
  readonly capMs: number;
}
/**
 * A share of 1 doubles: 30 s, 30 s, 1 min, 2, 4, 8, 16, 32 min, 1 h 4, 2 h 8, then every 4 h.
 * Failures that an operator corrects are retried more often.
 */
export const BACK_OFFS = {
  transient: { share: 1, firstMs: 30_000, capMs: 14_400_000 },
  ours: { share: 0.25, firstMs: 60_000, capMs: 900_000 },
  busy: { share: 0.05, firstMs: 30_000, capMs: 3_600_000 },
  throttled: { share: 1, firstMs: 5_000, capMs: 900_000 },
} as const satisfies Record<string, BackOff>;
/** docs/privacy.md promises that a record ends after three days. */
export const BACKED_OFF_AT_MOST_MS = 3 * 86_400_000;

export const SETTLE_RETRY = { firstMs: 500, capMs: 5_000 } as const;
export const SETTLE_TRIES = 120;

/** After this many dead workers, a record is a dead letter. */
export const MAX_CRASHES = 5;
/** After this many, it is tried alone, at a random time within `CRASH_APART_MS`. */
export const CRASHES_ALONE = 2;
export const CRASH_APART_MS = 60_000;

/** After the first ambiguous end and the second: a short fault of the relay makes no dead letter. */
export const AMBIGUOUS_WAITS_MS = [30_000, 3_000_000] as const;
/** E-mails that no operator ordered; an unknown result counts as one. */
export const MAX_AMBIGUOUS = AMBIGUOUS_WAITS_MS.length + 1;
/** A whole hand-over, and ten seconds to record it. */
export const FINISH_WORK_MS = mailerLimits.beforeContentMs + mailerLimits.afterContentMs + 10_000;
/** The chart's grace period is five seconds longer. */
export const PROCESSOR_DRAIN_MS = FINISH_WORK_MS + 20_000;

export const COMPLETE_RETRY = { firstMs: 100, capMs: 2_000 } as const;

export const PROBE_BACKOFF = { firstMs: 250, capMs: 5_000 } as const;
export const PROBE_DEADLINE_MS = 15_000;

/** With 15 s to the first sight and 15 s of grace, a lost job is repaired within 35 s. */
export const RECONCILE_EVERY_MS = 2_500;
export const UNKNOWN_EVERY_MS = 60_000;
export const UNKNOWN_MOST = 1_000;

export const EXPIRE_EVERY_MS = 60_000;

export const PROGRESS_DEADLINE_MS = 60_000;

/** Holds must take effect within five seconds. */
export const FOLLOW_HOLDS_MS = 1_000;
/** Of each step in memory; each takes about 300 bytes. */
export const LINE_MOST = 10_000;
/** In one process, so that they take little of the database from live work. */
export const TESTS_AT_ONCE = 4;
/** With fewer of a step in memory, what is due is read at once. */
export const LINE_LOW = 100;
