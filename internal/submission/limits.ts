/** Every bound of writing records, with the reason for its size. */

export interface GroupCommitLimits {
  /** Batches under way at once: one being committed while the next is being sent and parsed. */
  readonly maxInFlight: number;
  /** Documents in one batch: enough that the fixed cost of a write no longer counts. */
  readonly maxBatchDocuments: number;
  /** Bytes in one batch: a sixth of the 48 MB MongoDB takes in one message. */
  readonly maxBatchBytes: number;
  /** Documents waiting: at the measured 10,000 a second, one second of work; beyond it a 500 at once is kinder. */
  readonly maxWaitingDocuments: number;
  /** Bytes waiting: with the batches in flight this bounds the memory a flood of large bodies can take. */
  readonly maxWaitingBytes: number;
  /** Below this share of the waiting bound, records of refused requests may use the spare room. */
  readonly spareShare: number;
  /** A document that has less time left than this is not sent any more: its 500 is then a plain one, not in doubt. */
  readonly minSendBudgetMs: number;
}

export const groupCommitLimits: GroupCommitLimits = {
  maxInFlight: 2,
  maxBatchDocuments: 256,
  maxBatchBytes: 8 * 1024 * 1024,
  maxWaitingDocuments: 10_000,
  maxWaitingBytes: 32 * 1024 * 1024,
  spareShare: 0.25,
  minSendBudgetMs: 100,
};

/** Withdrawals remembered at once; each is an id and a date, and only an outage fills this. */
export const MAX_PENDING_WITHDRAWALS = 50_000;
/** Withdrawals sent in one write. */
export const WITHDRAWAL_BATCH = 500;
/** A write of withdrawals that is not answered by then is tried again. */
export const WITHDRAWAL_DEADLINE_MS = 5_000;
export const WITHDRAWAL_RETRY = { firstMs: 250, capMs: 2_000 } as const;

/** Records of a state that are counted at most: beyond it the exact number tells an operator nothing more. */
export const BACKLOG_COUNTED = 100_000;
/** Records looked at from each end to find the one that has waited longest. */
export const BACKLOG_LOOKED_AT = 500;
/** Longest one question about the backlog may keep the database busy. */
export const BACKLOG_TIMEOUT_MS = 5_000;
