/** The record of one received request; states.ts has its moves. */
import type { Binary, Db } from 'mongodb';
import type { Reason } from '../application/reasons.ts';
import type { State } from './states.ts';

export const SUBMISSIONS = 'requests';

/** Only this room uses the collection. */
export const submissionCollection = (db: Db) => db.collection<SubmissionRecord>(SUBMISSIONS);

/** A process leaves records with a newer shape alone. */
export const RECORD_SCHEMA = 1;

export interface HistoryEntry {
  readonly state: State;
  readonly at: Date;
  readonly attempt: number;
  readonly reason?: string;
}

/** This is personal data; a rejected record may lack parts. */
export interface Applicant {
  readonly email?: string;
  readonly ein?: string;
  readonly businessName?: string;
}

export interface SubmissionRecord {
  readonly _id: string;
  readonly receivedAt: Date;
  readonly partnerId?: string;
  readonly remoteIp: string;
  readonly userAgent?: string;
  readonly contentType?: string;
  /** The first 65,000 bytes are kept until `bodyUntil`. */
  readonly body?: Binary;
  /** Set only if the record outlives its body. */
  readonly bodyUntil?: Date;
  /** There may be more than are kept. */
  readonly bodyBytes: number;
  readonly bodySha256?: string;
  readonly idempotencyDigest?: string;
  /** A later request got this record's answer, so it must not be withdrawn. */
  readonly adopted?: true;
  readonly httpStatus: number;
  readonly schema: number;
  readonly state: State;
  readonly stateAt: Date;
  /** Counts claims and operators' moves. */
  readonly version: number;
  readonly claimedBy?: string;
  /** Only open states have it. */
  readonly dueAt?: Date;
  /** An operator asked for an attempt, made even while the relay is paused. */
  readonly urgent?: true;
  /** The claim ends then unless renewed. */
  readonly claimedUntil?: Date;
  readonly firstSeenAt?: Date;
  readonly attempts: number;
  /** Milliseconds of back-off in this state; three days at most. */
  readonly backedOffMs?: number;
  /** Consecutive claims whose workers died. */
  readonly crashes?: number;
  /** The previous worker died holding the claim. */
  readonly takenOver?: true;
  /** Later claims' hand-overs count towards the bound on mails. */
  readonly mailsSince?: number;
  /** Hand-overs that may have arrived, but have no answer. */
  readonly ambiguous?: number;
  readonly history: readonly HistoryEntry[];
  readonly applicant?: Applicant;
  readonly reasons?: readonly Reason[];
  readonly accountId?: string;
  readonly lastError?: string;
  readonly traceparent?: string;
  readonly bouncedAt?: Date;
  /** Such a record is never worked on. */
  readonly erasedAt?: Date;
  /** The TTL index reads it; `dead_lettered` never has it. */
  readonly expiresAt?: Date;
}

/** Counts from 1 in each open state. */
export function attemptOf({
  attempts,
  ambiguous = 0,
}: Pick<SubmissionRecord, 'attempts' | 'ambiguous'>): number {
  return attempts + ambiguous + 1;
}

/** Reconcile then looks at an unclaimed record. */
export const FIRST_DUE_MS = 15_000;
