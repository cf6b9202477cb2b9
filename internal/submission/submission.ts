/** The record of one received request, its indexes, and the times that several files share. */
import type { Binary, Db } from 'mongodb';
import type { Applicant } from '../application/fields.ts';
import type { StoredReason } from '../application/reasons.ts';
import type { ProbeKind } from '../application/sandbox-endings.ts';
import { TESTS_KEPT_SECONDS } from '../partner/key-terms.ts';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';
import type { Fact } from './facts.ts';
import { RATE_LIMITED } from './over-limit.ts';
import { type OpenState, openStates, type State } from './states.ts';

export const SUBMISSIONS = 'requests';

export const submissionCollection = (db: Db) => db.collection<SubmissionRecord>(SUBMISSIONS);

/** A process leaves records with a newer schema alone. */
export const RECORD_SCHEMA = 1;

export interface HistoryEntry {
  readonly state: State;
  readonly at: Date;
  readonly attempt: number;
  /** Why, in words; the rest of the fact is for programs. */
  readonly reason?: string;
  readonly code?: Fact['code'];
  readonly of?: string;
}

export interface SubmissionRecord {
  readonly _id: string;
  readonly receivedAt: Date;
  readonly partnerId?: string;
  /** Present if the request was turned away with a known key. */
  readonly keyId?: string;
  /** It came with a test key: nothing about it is real, and it is kept for a week. */
  readonly test?: true;
  /** It is the controller's probe. The e-mail of one `mail` goes to `PROBE_MAIL_TO`. */
  readonly probe?: ProbeKind;
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
  /** Names the command that claimed it. */
  readonly claimedBy?: string;
  /** Since then an earlier request of the same applicant is decided first. */
  readonly waitsSince?: Date;
  readonly firstSeenAt?: Date;
  readonly attempts: number;
  /** Sum of back-offs in this state; three days end the retries. */
  readonly backedOffMs?: number;
  /** Consecutive claims whose workers died. */
  readonly crashes?: number;
  /** The previous worker died holding the claim. */
  readonly takenOver?: true;
  /** Only hand-overs of claims after this `version` count towards the limit on e-mails. */
  readonly mailsSince?: number;
  /** Hand-overs without a reply, which may have arrived. */
  readonly ambiguous?: number;
  readonly history: readonly HistoryEntry[];
  readonly applicant?: Applicant;
  readonly reasons?: readonly StoredReason[];
  readonly accountId?: string;
  readonly lastError?: string;
  /** The same, for programs. */
  readonly lastFact?: Fact;
  readonly traceparent?: string;
  readonly bouncedAt?: Date;
  /** When an operator ordered the release of its account, which is written next. */
  readonly releasedAt?: Date;
  readonly erasedAt?: Date;
  /** Open records and dead letters have none. */
  readonly expiresAt?: Date;
}

export type OpenRecord = SubmissionRecord & { readonly state: OpenState };

/** Condition that leaves out tests. */
export const live = { test: { $ne: true } } as const;

/** Live records that have not ended. `dueAt` is named so that the small partial index is used. */
export const liveOpen = {
  ...live,
  state: { $in: [...openStates] },
  dueAt: { $exists: true },
};

/** The e-mail came back after the relay had accepted it. */
export function isBounced({
  state,
  stateAt,
  bouncedAt,
}: Pick<SubmissionRecord, 'state' | 'stateAt' | 'bouncedAt'>): boolean {
  const isEnded = state === 'undeliverable' || state === 'dead_lettered';
  return isEnded && bouncedAt?.getTime() === stateAt.getTime();
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

/** After a worker dies, its record waits this long. */
export const CLAIM_MS = 45_000;

/** The time for a withdrawal after an unclaimed record is first found due. */
export const FIRST_SIGHT_GRACE_MS = 15_000;

/** A claim raises the version. */
export const claimedBefore = { version: { $gt: 0 } } as const;

/** Indexes of `requests` and `rate_limited`. */
export const submissionIndexes: readonly IndexDefinition[] = [
  // Only open records have `dueAt`, so this index is as small as the backlog.
  {
    collection: SUBMISSIONS,
    name: 'requests_due',
    // A query skips partners on hold without reading their records.
    key: { state: 1, dueAt: 1, partnerId: 1 },
    partialFilterExpression: { dueAt: { $exists: true } },
  },
  // In DocumentDB, a partial index makes inserts a fifth cheaper than a sparse one.
  {
    collection: SUBMISSIONS,
    name: 'requests_expiry',
    key: { expiresAt: 1 },
    partialFilterExpression: { expiresAt: { $exists: true } },
    expireAfterSeconds: 0,
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_body_expiry',
    key: { bodyUntil: 1 },
    partialFilterExpression: { bodyUntil: { $exists: true } },
  },
  // From the insert on: which request of an EIN came first is asked before an account. With the
  // state, however many of an applicant were decided, only open ones are read.
  {
    collection: SUBMISSIONS,
    name: 'requests_ein',
    key: { 'applicant.ein': 1, state: 1 },
    partialFilterExpression: { 'applicant.ein': { $exists: true } },
  },
  // From the first claim on: a second index of random keys would cost each accept a twentieth.
  {
    collection: SUBMISSIONS,
    name: 'requests_email',
    key: { 'applicant.email': 1, state: 1 },
    partialFilterExpression: { 'applicant.email': { $exists: true }, ...claimedBefore },
  },
  // A partner's own list, newest first.
  {
    collection: SUBMISSIONS,
    name: 'requests_partner',
    key: { partnerId: 1, _id: -1 },
    partialFilterExpression: { partnerId: { $exists: true } },
  },
  // A scan by `_id` would find the few dead letters slowly.
  {
    collection: SUBMISSIONS,
    name: 'requests_dead_lettered',
    key: { state: 1, _id: 1 },
    partialFilterExpression: { state: 'dead_lettered' },
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_idempotency',
    key: { idempotencyDigest: 1 },
    unique: true,
    partialFilterExpression: { idempotencyDigest: { $exists: true } },
  },
  // These three hold only tests, which expire in any state.
  {
    collection: SUBMISSIONS,
    name: 'requests_tests_due',
    key: { dueAt: 1 },
    partialFilterExpression: { test: true, dueAt: { $exists: true } },
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_tests_partner',
    key: { partnerId: 1, _id: -1 },
    partialFilterExpression: { test: true },
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_tests_expiry',
    key: { receivedAt: 1 },
    partialFilterExpression: { test: true },
    expireAfterSeconds: TESTS_KEPT_SECONDS,
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_bounced',
    key: { bouncedAt: 1 },
    partialFilterExpression: { bouncedAt: { $exists: true } },
  },
  // Counts of a period: of all partners, and of one.
  { collection: RATE_LIMITED, name: 'rate_limited_window', key: { windowStart: -1 } },
  {
    collection: RATE_LIMITED,
    name: 'rate_limited_partner',
    key: { partnerId: 1, windowStart: -1 },
    partialFilterExpression: { partnerId: { $exists: true } },
  },
  {
    collection: RATE_LIMITED,
    name: 'rate_limited_expiry',
    key: { expiresAt: 1 },
    expireAfterSeconds: 0,
  },
];
