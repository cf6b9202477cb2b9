/** Every bound of the background work, with the reason for its size. */
import { mailerLimits } from '../mail/mailer.ts';

/**
 * A new account waits this long for a mail slot, so that its mail goes out in the same claim. After a wait in vain nobody waits for
 * some time: a relay that is slow delays accounts by a tenth at most.
 */
export const MAIL_SLOT_WAIT_MS = 1_000;
export const MAIL_SLOT_WAITS_AGAIN_MS = 10_000;

/** How often a claim is renewed while work goes on: three tries within its 45 s. */
export const RENEW_EVERY_MS = 15_000;
/** A claim not confirmed for this long is treated as lost; below 45 s by more than a renewal may take. */
export const CLAIM_TRUSTED_MS = 35_000;

/** Beyond this a processor takes no work: two that differ by twice as much still keep a claim's 45 s apart from the 35 s it is trusted. */
export const CLOCK_OFFSET_MAX_MS = 5_000;

/**
 * Back-off of a failing attempt: 30 s, 1 min, 2, 4, 8, 16, 32 min, 1 h 4, 2 h 8, then every 4 h.
 * The first nine delays add up to 4 h 15 min; 17 more of 4 h make 72 h 15 min: three days, then a dead letter.
 */
export const ATTEMPT_BACKOFF = { firstMs: 30_000, capMs: 14_400_000, jitter: 0.2 } as const;
export const MAX_ATTEMPTS = 27;
/** Mails that may reach an applicant without an operator's wish. A hand-over without a known result counts as one. */
export const MAX_AMBIGUOUS = 3;
/** What is parked, whatever for, ends as a dead letter after three days, as docs/privacy.md promises. */
export const PARKED_AT_MOST_MS = 3 * 86_400_000;
/** What is parked comes up again after this share of the time that it has waited, within these bounds. */
export interface ParkedRetry {
  readonly share: number;
  readonly firstMs: number;
  readonly capMs: number;
}
/** A busy relay or mailbox. */
export const BUSY_RETRY: ParkedRetry = { share: 0.05, firstMs: 30_000, capMs: 3_600_000 };
/** A fault of our own (sender refused, our settings, no right): what an operator corrects early is over early. */
export const OURS_RETRY: ParkedRetry = { share: 0.25, firstMs: 60_000, capMs: 900_000 };

/** The sender counts as refused when the relay blames us for this share of the last accounts' mails, and this many at least. */
export const BREAKER_SHARE = 0.5;
export const BREAKER_LEAST = 3;
export const BREAKER_ACCOUNTS = 20;
/** While the sender is refused, one mail is tried this often, and the others wait. */
export const BREAKER_TRIAL_MS = 60_000;

/** A parked record comes up again after this; the worker itself resumes as soon as a probe succeeds. */
export const PARKED_RETRY_MS = 5_000;

/** Longest a closing worker waits for what it has in hand: a whole hand-over, and ten seconds to note its result. */
export const FINISH_WORK_MS = mailerLimits.beforeContentMs + mailerLimits.afterContentMs + 10_000;
/** Longest the drain of a processor takes; the chart's grace period is five seconds more. */
export const PROCESSOR_DRAIN_MS = FINISH_WORK_MS + 20_000;

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
/** Of that rest each process takes so many in a round, the oldest first. */
export const RECONCILE_OLDEST = 20;
/** Records that this version does not understand are counted this often: they wait for a new version, not for a round. */
export const UNKNOWN_EVERY_MS = 60_000;
/** After the first sight of a record that nobody ever claimed, withdrawal gets this long before it is queued. */
export const FIRST_SIGHT_GRACE_MS = 15_000;
/** A record that was queued again is looked at once more after this, in case that hint is lost as well. */
export const REQUEUED_AGAIN_MS = 30_000;

/** How often personal data whose time is over is removed: a minute is nothing beside days. */
export const EXPIRE_EVERY_MS = 60_000;
/** Pages of one kind in one round, 500 records each: 8,000 a second for a backlog, and room for other work in between. */
export const EXPIRE_PAGES = 1_000;

/** A worker that has nothing in hand and has not asked for work for this long is not live. */
export const PROGRESS_DEADLINE_MS = 60_000;

/** How long an activation link works. */
export const ACTIVATION_MS = 7 * 86_400_000;

/** Holds are read this often: with a claim's few milliseconds, one takes effect well within five seconds. */
export const FOLLOW_HOLDS_MS = 1_000;
/** Records set aside for an ended hold are looked for this long: no processor follows holds later than that. */
export const SWEPT_FOR_MS = 3_600_000;
/** Records taken up in one update after a hold has ended. */
export const TAKE_UP_PAGE = 1_000;
