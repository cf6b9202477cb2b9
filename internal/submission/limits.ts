/** Bounds of this room, with the reason for each size. */

export const groupCommitLimits = {
  /** One batch is committed while the next is sent. */
  maxInFlight: 2,
  maxBatchDocuments: 256,
  /** Holds 60 of the largest bodies. */
  maxBatchBytes: 4 * 1024 * 1024,
  /** One second of work at 10,000 a second; beyond it the partner with most waiting gets a 500. */
  maxWaitingDocuments: 10_000,
  maxWaitingBytes: 16 * 1024 * 1024,
  /** What has less time left waits for quicker inserts; at most a share of the time-out. */
  timeToSend: { leastMs: 100, timesLastInsert: 1.2, mostShare: 0.75 },
  /** At this number nothing more is sent, so that all can be withdrawn before reconcile looks. */
  maxPendingWithdrawals: 500,
};
export type GroupCommitLimits = typeof groupCommitLimits;

export const KEPT_HEADER_CHARACTERS = 256;

/** Of a window, status and process; further addresses share one count. */
export const OVER_LIMIT_ADDRESSES = 200;
export const OVER_LIMIT_IDS = 20;
export const REFUSED_WINDOW_MS = 60_000;
export const OVER_LIMIT_FLUSH_MS = 5_000;
export const OVER_LIMIT_FAILS_AFTER_MS = 60_000;

/** A batch has a quarter of the size after a failure, `least` more after a success. */
export const WITHDRAWAL_BATCH = { most: 500, least: 16 } as const;
export const WITHDRAWAL_DEADLINE_MS = 5_000;
/**
 * An applied withdrawal keeps workers away, so the next write need not wait for the majority. Three
 * writes apply all before reconcile looks at 15 s.
 */
export const WITHDRAWAL_MAJORITY_MS = 1_000;
export const WITHDRAWAL_RETRY = { firstMs: 250, capMs: 2_000 } as const;

/** Two processes know the database's time within this of each other. */
export const EARLY_MS = 1_000;

/** After a worker dies, its record waits this long. */
export const CLAIM_MS = 45_000;

export const BOUNCED_WINDOW_MS = 86_400_000;

export const BACKLOG_COUNTED = 100_000;
/** Counting by partner reads documents. */
export const BACKLOG_BY_PARTNER = 20_000;
/** Read from each end of `dueAt` to find the oldest record. */
export const BACKLOG_LOOKED_AT = 500;
export const DUE_PAGE = 500;
/** Each behind a full one, without the partners before. */
export const DUE_PAGES = 4;
/** The time for a withdrawal after an unclaimed record is first found due. */
export const FIRST_SIGHT_GRACE_MS = 15_000;
/** Just below the socket time-out of 10 s. */
export const DUE_TIMEOUT_MS = 9_000;
export const BACKLOG_TIMEOUT_MS = 5_000;

export const BODY_EXPIRY_PAGE = 500;

export const BODY_PAGE = 100;

export const LIST_PAGE = 100;
/** For a page of one state: at most 32 MB of bodies pass. */
export const LIST_LOOKED_AT = 500;
/** An id is made before the head, the record is stamped after the body: 20 s, and clocks differ. */
export const ID_AND_RECEIPT_MS = 60_000;
