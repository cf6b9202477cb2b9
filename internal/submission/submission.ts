/** The record of one received request. Its states and the moves between them are in states.ts. */
import type { Binary } from 'mongodb';
import type { Reason } from '../application/reasons.ts';
import type { State } from './states.ts';

export const SUBMISSIONS = 'requests';

/** Version of the record's shape. A process leaves records of a newer one alone. */
export const RECORD_SCHEMA = 1;

export interface HistoryEntry {
  readonly state: State;
  readonly at: Date;
  readonly attempt: number;
  readonly reason?: string;
}

/** What the processor understood of the body; personal data, like `body` itself. A rejected one may lack parts. */
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
  /** The bytes as they came (the first 65,000 of a larger body); absent where the body was not read. */
  readonly body?: Binary;
  /** Bytes received, which may be more than are kept. */
  readonly bodyBytes: number;
  /** SHA-256 of `body` in hex. */
  readonly bodySha256?: string;
  readonly httpStatus: number;
  readonly schema: number;
  readonly state: State;
  readonly stateAt: Date;
  /** Counts claims and an operator's moves; a worker's move needs the version its claim made. */
  readonly version: number;
  /** Mark of the latest claim, by which its worker recognises what it got. */
  readonly claimedBy?: string;
  /** When reconcile looks at it again; only on open states. */
  readonly dueAt?: Date;
  /** Until when the claim of a worker holds, unless it is renewed; absent while nobody works on it. */
  readonly heldUntil?: Date;
  /** Set when reconcile first saw a record nobody has claimed (see reconcile.ts). */
  readonly firstSeenAt?: Date;
  /** Failed attempts at the present state's work. */
  readonly attempts: number;
  /** Hand-overs of the e-mail that ended without an answer after the content. */
  readonly ambiguous?: number;
  readonly history: readonly HistoryEntry[];
  readonly applicant?: Applicant;
  readonly reasons?: readonly Reason[];
  readonly accountId?: string;
  readonly lastError?: string;
  readonly traceparent?: string;
  /** When an operator removed everything personal (docs/privacy.md); such a record is never worked on again. */
  readonly erasedAt?: Date;
  /** When the TTL index deletes it; only on final states, never on `dead_lettered`. */
  readonly expiresAt?: Date;
}

/** A record whose hint brings no worker within this time is looked at by reconcile. */
export const FIRST_DUE_MS = 15_000;
