/** Every bound of writing records, with the reason for its size. */

export interface GroupCommitLimits {
  /** Batches under way at once: one being committed while the next is being sent and parsed. */
  readonly maxInFlight: number;
  /** Documents in one batch: enough to make the fixed cost of a write small. */
  readonly maxBatchDocuments: number;
  /**
   * Bytes in one batch: 60 of the largest bodies, and a twelfth of the 48 MB MongoDB takes in one
   * message.
   */
  readonly maxBatchBytes: number;
  /**
   * Documents waiting: at the measured 10,000 a second, one second of work; beyond it the answer is
   * a 500 at once.
   */
  readonly maxWaitingDocuments: number;
  /**
   * Bytes waiting: with the batches in flight this bounds the memory a flood of large bodies can
   * take.
   */
  readonly maxWaitingBytes: number;
  /** Below this share of the waiting bound, records of refused requests may use the spare room. */
  readonly spareShare: number;
  /**
   * A document with less time left than this is not sent: its 500 is then certain, not in doubt.
   */
  readonly minSendBudgetMs: number;
  /**
   * While as many withdrawals are pending, nothing is sent: one write settles so many, and with
   * what is in flight then all of them are applied before reconcile looks. A database that
   * acknowledges nothing would only make more of them.
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

/** User-Agent and Content-Type are kept for support, up to this many characters. */
export const KEPT_HEADER_CHARACTERS = 256;

/** Addresses over their limit that a flush counts separately; further ones share one count. */
export const OVER_LIMIT_ADDRESSES = 10_000;
/** First ids kept of an address and window. */
export const OVER_LIMIT_IDS = 20;
/** Refused requests beyond the bound of single records are counted by this much time. */
export const REFUSED_WINDOW_MS = 60_000;
/** How often the counts are written. */
export const OVER_LIMIT_FLUSH_MS = 5_000;

/**
 * Withdrawals sent in one write: a quarter after a write without an answer, `least` more after one
 * with. A database that is too slow to finish a large write in time, and undoes what it began,
 * still finishes small ones.
 */
export const WITHDRAWAL_BATCH = { most: 500, least: 16 } as const;
/** A write of withdrawals that is not answered by then is tried again. */
export const WITHDRAWAL_DEADLINE_MS = 5_000;
/**
 * It waits this long for the majority. An applied withdrawal keeps reconcile and workers away
 * already, so the next ones are applied before this one is acknowledged: all that may be pending
 * take three writes, long before the 15 s of reconcile.
 */
export const WITHDRAWAL_MAJORITY_MS = 1_000;
export const WITHDRAWAL_RETRY = { firstMs: 250, capMs: 2_000 } as const;

/**
 * A claim holds this long unless renewed; the record of a killed worker waits this long for
 * reconcile.
 */
export const CLAIM_MS = 45_000;

/**
 * Reported bounces of this time are shown as a metric: a day, because they come in hours after the
 * mail.
 */
export const BOUNCED_WINDOW_MS = 86_400_000;

/** Records of a state that are counted at most; a larger exact number does not help an operator. */
export const BACKLOG_COUNTED = 100_000;
/** Open records whose partners are counted; the documents are read, so their number has a bound. */
export const BACKLOG_BY_PARTNER = 20_000;
/** Records read from each end to find the oldest. */
export const BACKLOG_LOOKED_AT = 500;
/** Records in one page of the line of mails: several seconds of work of one processor. */
export const LINE_PAGE = 500;
/** Where one page is not all: further partners looked at, and of each the records read. */
export const LINE_PARTNERS = 25;
export const LINE_OF_PARTNER = 50;
/**
 * Longest a search for due records may keep the database busy: just under the socket's time-out,
 * which ends it for us.
 */
export const DUE_TIMEOUT_MS = 9_000;
/** Longest one question about the backlog may keep the database busy. */
export const BACKLOG_TIMEOUT_MS = 5_000;

/** Bodies removed in one update. */
export const BODY_EXPIRY_PAGE = 500;

/**
 * Records with bodies in one page of a walk over all of them: at most 65,000 bytes each, 6.5 MB
 * together.
 */
export const BODY_PAGE = 100;
