/** The record of one received request. */
import type { Binary, Db } from 'mongodb';
import type { Applicant } from '../application/fields.ts';
import type { StoredReason } from '../application/reasons.ts';
import { openStates, type OpenState, type State } from './states.ts';

export const SUBMISSIONS = 'requests';

export const submissionCollection = (db: Db) => db.collection<SubmissionRecord>(SUBMISSIONS);

/** A process leaves records with a newer schema alone. */
export const RECORD_SCHEMA = 1;

export interface HistoryEntry {
  readonly state: State;
  readonly at: Date;
  readonly attempt: number;
  readonly reason?: string;
}

export interface SubmissionRecord {
  readonly _id: string;
  readonly receivedAt: Date;
  readonly partnerId?: string;
  /** Of a request that was turned away with a known key. */
  readonly keyId?: string;
  /** It came with a test key: nothing about it is real, and it is kept for a week. */
  readonly test?: true;
  readonly remoteIp: string;
  readonly userAgent?: string;
  readonly contentType?: string;
  /** At most 65,000 bytes, kept until `bodyUntil`. */
  readonly body?: Binary;
  readonly bodyUntil?: Date;
  /** The received size, which may exceed what is kept. */
  readonly bodyBytes: number;
  readonly bodySha256?: string;
  readonly idempotencyDigest?: string;
  /** Another request got this record's answer, so it must not be withdrawn. */
  readonly adopted?: true;
  readonly httpStatus: number;
  readonly schema: number;
  readonly state: State;
  readonly stateAt: Date;
  /** Counts claims and operators' moves. */
  readonly version: number;
  readonly dueAt?: Date;
  readonly claimedUntil?: Date;
  readonly firstSeenAt?: Date;
  readonly attempts: number;
  /** Milliseconds in this state, at most three days. */
  readonly backedOffMs?: number;
  /** Consecutive claims whose workers died. */
  readonly crashes?: number;
  /** The previous worker died holding the claim. */
  readonly takenOver?: true;
  /** Only hand-overs of later claims count towards the limit on e-mails. */
  readonly mailsSince?: number;
  /** Hand-overs without a reply, which may have arrived. */
  readonly ambiguous?: number;
  readonly history: readonly HistoryEntry[];
  readonly applicant?: Applicant;
  readonly reasons?: readonly StoredReason[];
  readonly accountId?: string;
  readonly lastError?: string;
  readonly traceparent?: string;
  readonly bouncedAt?: Date;
  readonly erasedAt?: Date;
  /** Dead letters never have it. */
  readonly expiresAt?: Date;
}

export type OpenRecord = SubmissionRecord & { readonly state: OpenState };

/** Of a query that leaves tests out. */
export const live = { test: { $ne: true } } as const;

/** Matches a partial index as small as the backlog. */
export const liveOpen = {
  ...live,
  state: { $in: [...openStates] },
  dueAt: { $exists: true },
};

/** The last move says that the e-mail came back after the relay had taken it. */
export function isBounced({
  state,
  stateAt,
  bouncedAt,
}: Pick<SubmissionRecord, 'state' | 'stateAt' | 'bouncedAt'>): boolean {
  return state === 'undeliverable' && bouncedAt?.getTime() === stateAt.getTime();
}

/** Counts from 1 in each open state. */
export function attemptOf({
  attempts,
  ambiguous = 0,
}: Pick<SubmissionRecord, 'attempts' | 'ambiguous'>): number {
  return attempts + ambiguous + 1;
}

/** Reconcile first looks at an unclaimed record after this time. */
export const FIRST_DUE_MS = 15_000;
