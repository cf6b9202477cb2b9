/** The record of one received request. Its states and the moves between them are in states.ts. */
import type { Binary, Db } from 'mongodb';
import type { Reason } from '../application/reasons.ts';
import type { State } from './states.ts';

export const SUBMISSIONS = 'requests';

/** Only this room reads or writes the collection; everyone else calls the room's stores. */
export const submissionCollection = (db: Db) => db.collection<SubmissionRecord>(SUBMISSIONS);

/** Version of the record's shape. A process leaves records of a newer one alone. */
export const RECORD_SCHEMA = 1;

export interface HistoryEntry {
  readonly state: State;
  readonly at: Date;
  readonly attempt: number;
  readonly reason?: string;
}

/**
 * What the processor understood of the body; personal data, like `body` itself. A rejected one may
 * lack parts.
 */
export interface Applicant {
  readonly email?: string;
  readonly ein?: string;
  readonly businessName?: string;
}

/** One document of `requests`, as MongoDB holds it. */
export interface SubmissionRecord {
  readonly _id: string;
  readonly receivedAt: Date;
  readonly partnerId?: string;
  readonly remoteIp: string;
  readonly userAgent?: string;
  readonly contentType?: string;
  /**
   * The bytes as they came (the first 65,000 of a larger body); absent where none were read, and
   * after `bodyUntil`.
   */
  readonly body?: Binary;
  /**
   * When a processor removes `body`; only on final states that keep the record longer than its
   * body.
   */
  readonly bodyUntil?: Date;
  /** Bytes received, which may be more than are kept. */
  readonly bodyBytes: number;
  /** SHA-256 of `body` in hex. */
  readonly bodySha256?: string;
  /** Of the Idempotency-Key it came with (idempotency.ts); unique. */
  readonly idempotencyDigest?: string;
  /**
   * A later request with the same key and body was told of this record, so it must not be
   * withdrawn.
   */
  readonly adopted?: true;
  readonly httpStatus: number;
  readonly schema: number;
  readonly state: State;
  readonly stateAt: Date;
  /** Counts claims and an operator's moves; a worker's move needs the version its claim made. */
  readonly version: number;
  /** Mark of the latest claim, by which its worker recognises what it got. */
  readonly claimedBy?: string;
  /** When it is worked on again; on open states only. */
  readonly dueAt?: Date;
  /**
   * An operator asked for the next attempt, so it is tried at once even while the relay takes
   * nothing.
   */
  readonly urgent?: true;
  /**
   * Until when the claim of a worker holds, unless it is renewed; absent while nobody works on it.
   */
  readonly heldUntil?: Date;
  /** Set when reconcile first saw a record nobody has claimed (see reconcile.ts). */
  readonly firstSeenAt?: Date;
  /** Failed attempts at the present state's work. */
  readonly attempts: number;
  /**
   * Milliseconds that it has waited for its own failures in the present state; three days at most.
   */
  readonly backedOffMs?: number;
  /** Claims that ended without a word, one after another: their workers died. */
  readonly crashes?: number;
  /** The claim was taken from a worker that died. */
  readonly takenOver?: true;
  /**
   * The version that an operator's move made; hand-overs of later claims count towards the bound on
   * mails.
   */
  readonly mailsSince?: number;
  /** Hand-overs of the e-mail that may have reached the applicant, although no answer says so. */
  readonly ambiguous?: number;
  readonly history: readonly HistoryEntry[];
  readonly applicant?: Applicant;
  readonly reasons?: readonly Reason[];
  readonly accountId?: string;
  readonly lastError?: string;
  readonly traceparent?: string;
  /** When a later bounce of its e-mail was reported last. */
  readonly bouncedAt?: Date;
  /**
   * When an operator removed everything personal (docs/privacy.md); such a record is never worked
   * on again.
   */
  readonly erasedAt?: Date;
  /** When the TTL index deletes it; only on final states, never on `dead_lettered`. */
  readonly expiresAt?: Date;
}

/** The number of the attempt a claimed record is in; counts from 1 in each open state. */
export function attemptOf({
  attempts,
  ambiguous = 0,
}: Pick<SubmissionRecord, 'attempts' | 'ambiguous'>): number {
  return attempts + ambiguous + 1;
}

/** A record whose hint brings no worker within this time is looked at by reconcile. */
export const FIRST_DUE_MS = 15_000;
