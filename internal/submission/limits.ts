/** Every bound of writing records, with the reason for its size. */

export interface GroupCommitLimits {
  /** One batch is committed while the next is sent. */
  readonly maxInFlight: number;
  /** This makes the fixed cost of a write small. */
  readonly maxBatchDocuments: number;
  /** 60 of the largest bodies fit; MongoDB's largest message is twelve times as large (48 MB). */
  readonly maxBatchBytes: number;
  /** This is one second of work at the measured 10,000 a second; beyond it the answer is 500. */
  readonly maxWaitingDocuments: number;
  readonly maxWaitingBytes: number;
  /** Above this share, records of refused requests are dropped. */
  readonly spareShare: number;
  /** With less time left nothing is sent, so that its 500 is certain. */
  readonly minSendBudgetMs: number;
  /**
   * Beyond it nothing is sent. One write settles this many, and all in flight are applied before
   * reconcile looks.
   */
  readonly maxPendingWithdrawals: number;
}

export const groupCommitLimits: GroupCommitLimits = {
  maxInFlight: 2,
  maxBatchDocuments: 256,
  maxBatchBytes: 4 * 1024 * 1024,
  maxWaitingDocuments: 10_000,
  maxWaitingBytes: 16 * 1024 * 1024,
  spareShare: 0.25,
  minSendBudgetMs: 100,
  maxPendingWithdrawals: 500,
};

export const KEPT_HEADER_CHARACTERS = 256;

/** Further addresses share one count. */
export const OVER_LIMIT_ADDRESSES = 10_000;
export const OVER_LIMIT_IDS = 20;
export const REFUSED_WINDOW_MS = 60_000;
export const OVER_LIMIT_FLUSH_MS = 5_000;

/**
 * A write gets a quarter of the size after no answer, `least` more after a success: a slow database
 * still finishes small writes.
 */
export const WITHDRAWAL_BATCH = { most: 500, least: 16 } as const;
export const WITHDRAWAL_DEADLINE_MS = 5_000;
/**
 * An applied withdrawal keeps workers away, so the next write waits no longer for the majority.
 * Three writes apply all that may be pending, well before reconcile looks at 15 s.
 */
export const WITHDRAWAL_MAJORITY_MS = 1_000;
export const WITHDRAWAL_RETRY = { firstMs: 250, capMs: 2_000 } as const;

/** The record of a killed worker waits this long. */
export const CLAIM_MS = 45_000;

/** Bounces are often reported hours after the mail. */
export const BOUNCED_WINDOW_MS = 86_400_000;

/** A larger exact number does not help an operator. */
export const BACKLOG_COUNTED = 100_000;
/** Counting by partner reads documents. */
export const BACKLOG_BY_PARTNER = 20_000;
/** This many are read from each end of `dueAt`, to find the oldest. */
export const BACKLOG_LOOKED_AT = 500;
/** One page is several seconds of work for one processor. */
export const LINE_PAGE = 500;
/** These bound the reading behind a full page. */
export const LINE_PARTNERS = 25;
export const LINE_OF_PARTNER = 50;
/** This is just below the socket time-out of 10 s, so that the server ends the search. */
export const DUE_TIMEOUT_MS = 9_000;
export const BACKLOG_TIMEOUT_MS = 5_000;

export const BODY_EXPIRY_PAGE = 500;

/** Bodies have at most 65,000 bytes, so a page has 6.5 MB. */
export const BODY_PAGE = 100;
