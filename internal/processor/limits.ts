/** Every bound of the background work, with the reason for its size. */
import { mailerLimits } from '../mail/mailer.ts';

/** How often a claim is renewed while work goes on: three tries within its 45 s. */
export const RENEW_EVERY_MS = 15_000;
/**
 * A claim not confirmed for this long is treated as lost; below 45 s by more than a renewal may
 * take.
 */
export const CLAIM_TRUSTED_MS = 35_000;

/** A claim confirmed within this time needs no new question before a mail. */
export const CLAIM_FRESH_MS = 2_000;

/**
 * Beyond this a processor takes no work: two that differ by twice as much still keep a claim's 45 s
 * apart from the 35 s it is trusted.
 */
export const CLOCK_OFFSET_MAX_MS = 5_000;

/**
 * The pause after a failure of a record: this share of the time it has waited for its failures,
 * within bounds.
 */
interface BackOff {
  readonly share: number;
  readonly firstMs: number;
  readonly capMs: number;
}
/**
 * A share of 1 doubles: 30 s, 30 s, 1 min, 2, 4, 8, 16, 32 min, 1 h 4, 2 h 8, then every 4 h. What
 * an operator corrects (`ours`) and what ends by itself (`busy`, `throttled`) is tried more often.
 */
export const BACK_OFFS = {
  transient: { share: 1, firstMs: 30_000, capMs: 14_400_000 },
  ambiguous: { share: 1, firstMs: 30_000, capMs: 14_400_000 },
  ours: { share: 0.25, firstMs: 60_000, capMs: 900_000 },
  busy: { share: 0.05, firstMs: 30_000, capMs: 3_600_000 },
  throttled: { share: 1, firstMs: 1_000, capMs: 900_000 },
} as const satisfies Record<string, BackOff>;
export const BACK_OFF_JITTER = 0.2;
/**
 * What has waited for its own failures this long is a dead letter: three days, as docs/privacy.md
 * promises.
 */
export const BACKED_OFF_AT_MOST_MS = 3 * 86_400_000;

/** A worker whose database is away says what became of its record later: for about ten minutes. */
export const SETTLE_RETRY = { firstMs: 500, capMs: 5_000 } as const;
export const SETTLE_TRIES = 120;

/** A record whose worker died this often, one time after another, is a dead letter. */
export const MAX_CRASHES = 5;
/** After so many deaths a record is tried apart from others, within this time. */
export const CRASHES_ALONE = 2;
export const CRASH_APART_MS = 60_000;

/**
 * Mails that may reach an applicant without an operator's wish. A hand-over without a known result
 * counts as one.
 */
export const MAX_AMBIGUOUS = 3;
/**
 * Longest a closing worker waits for what it has in hand: a whole hand-over, and ten seconds to
 * note its result.
 */
export const FINISH_WORK_MS = mailerLimits.beforeContentMs + mailerLimits.afterContentMs + 10_000;
/** Longest the drain of a processor takes; the chart's grace period is five seconds more. */
export const PROCESSOR_DRAIN_MS = FINISH_WORK_MS + 20_000;

/** How often writing down that a mail went out is tried while the database is away. */
export const COMPLETE_RETRY = { firstMs: 100, capMs: 2_000 } as const;

/** How an outage is probed: quickly at first, then every five seconds. */
export const PROBE_BACKOFF = { firstMs: 250, capMs: 5_000, jitter: 0.2 } as const;
/** Longest one probe may take. */
export const PROBE_DEADLINE_MS = 15_000;

/**
 * Reconcile runs this often; with the 15 s to the first look and 15 s of grace a lost hint heals
 * within 35 s.
 */
export const RECONCILE_EVERY_MS = 2_500;
/** Records looked at in one round. */
export const RECONCILE_PAGE = 1_000;
/**
 * Above this many waiting jobs, of up to 50 records, workers have enough to do; the rest stays due
 * and comes up later.
 */
export const RECONCILE_MAX_WAITING = 100;
/** Of that rest each process takes so many in a round, the oldest first. */
export const RECONCILE_OLDEST = 20;
/**
 * Records that this version does not understand are counted this often: they wait for a new
 * version, not for a round.
 */
export const UNKNOWN_EVERY_MS = 60_000;
/**
 * After the first sight of a record that nobody ever claimed, withdrawal gets this long before it
 * is queued.
 */
export const FIRST_SIGHT_GRACE_MS = 15_000;
/**
 * A record that was queued again is looked at once more after this, in case that hint is lost as
 * well.
 */
export const REQUEUED_AGAIN_MS = 30_000;

/** How often personal data whose time is over is removed: a minute is nothing beside days. */
export const EXPIRE_EVERY_MS = 60_000;
/**
 * Pages of one kind in one round, 500 records each: 8,000 a second for a backlog, and room for
 * other work in between.
 */
export const EXPIRE_PAGES = 1_000;

/** A worker that has nothing in hand and has not asked for work for this long is not live. */
export const PROGRESS_DEADLINE_MS = 60_000;

/** How long an activation link works. */
export const ACTIVATION_MS = 7 * 86_400_000;

/** The partners on hold are read this often: a hold takes effect well within five seconds. */
export const FOLLOW_HOLDS_MS = 1_000;
/**
 * The line of mails is read this often: a record of another process, or one that came due, waits
 * half of it on average.
 */
export const LINE_EVERY_MS = 1_000;
/** Records of one partner kept in memory. */
export const LINE_KEPT = 500;
/** With fewer in memory, and more stored, the line is read again at once. */
export const LINE_LOW = 100;
