/**
 * The record of one received request: its shape, its indexes, the facts that it keeps, how it begins,
 * and the times that several files share.
 */
import { Binary, type Db } from 'mongodb';
import type { Applicant } from '../application/fields.ts';
import type { StoredReason } from '../application/reasons.ts';
import type { ProbeKind } from '../application/sandbox-endings.ts';
import { TESTS_KEPT_SECONDS, ownerName } from '../partner/key-terms.ts';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';
import { RATE_LIMITED } from './over-limit.ts';
import { endStates, openStates, type OpenState, type State, type Event } from './states.ts';
import type { Fault } from '../platform/process/fault.ts';
import { defined } from '../platform/process/defined.ts';
import { hash } from 'node:crypto';
import { DAY_MS } from '../platform/process/clock.ts';

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

const has = (field: string) => ({ [field]: { $exists: true } });
const ended = { state: { $in: [...endStates] } };
/** Of the records that have what `only` says. */
const ofRequests = (
  name: string,
  key: IndexDefinition['key'],
  only: Record<string, unknown>,
  more: Partial<IndexDefinition> = {},
): IndexDefinition => ({
  collection: SUBMISSIONS,
  name,
  key,
  partialFilterExpression: only,
  ...more,
});

/** Indexes of `requests` and `rate_limited`. */
export const submissionIndexes: readonly IndexDefinition[] = [
  // Only open records have `dueAt`, so this index is as small as the backlog. A query skips partners
  // on hold without reading their records.
  ofRequests('requests_due', { state: 1, dueAt: 1, partnerId: 1 }, has('dueAt')),
  // In DocumentDB, a partial index makes inserts a fifth cheaper than a sparse one.
  ofRequests('requests_expiry', { expiresAt: 1 }, has('expiresAt'), { expireAfterSeconds: 0 }),
  ofRequests('requests_body_expiry', { bodyUntil: 1 }, has('bodyUntil')),
  // From the insert on: which request of an EIN came first is asked before an account. With the
  // state, however many of an applicant were decided, only open ones are read.
  ofRequests('requests_ein', { 'applicant.ein': 1, state: 1 }, has('applicant.ein')),
  // From the first claim on: a second index of random keys would cost each accept a twentieth.
  ofRequests(
    'requests_email',
    { 'applicant.email': 1, state: 1 },
    { ...has('applicant.email'), ...claimedBefore },
  ),
  // A partner's own list, newest first.
  ofRequests('requests_partner', { partnerId: 1, _id: -1 }, has('partnerId')),
  // A partner's outcomes in their order. No record begins in these states, so an accept pays nothing.
  ofRequests('requests_outcomes', { partnerId: 1, stateAt: 1, _id: 1 }, ended),
  // A scan by `_id` would find the few dead letters slowly.
  ofRequests('requests_dead_lettered', { state: 1, _id: 1 }, { state: 'dead_lettered' }),
  ofRequests('requests_idempotency', { idempotencyDigest: 1 }, has('idempotencyDigest'), {
    unique: true,
  }),
  // These four hold only tests, which expire in any state.
  ofRequests(
    'requests_tests_outcomes',
    { partnerId: 1, stateAt: 1, _id: 1 },
    { test: true, ...ended },
  ),
  ofRequests('requests_tests_due', { dueAt: 1 }, { test: true, ...has('dueAt') }),
  ofRequests('requests_tests_partner', { partnerId: 1, _id: -1 }, { test: true }),
  ofRequests(
    'requests_tests_expiry',
    { receivedAt: 1 },
    { test: true },
    { expireAfterSeconds: TESTS_KEPT_SECONDS },
  ),
  ofRequests('requests_bounced', { bouncedAt: 1 }, has('bouncedAt')),
  // Counts of a period: of all partners, and of one.
  { collection: RATE_LIMITED, name: 'rate_limited_window', key: { windowStart: -1 } },
  {
    collection: RATE_LIMITED,
    name: 'rate_limited_partner',
    key: { partnerId: 1, windowStart: -1 },
    partialFilterExpression: has('partnerId'),
  },
  {
    collection: RATE_LIMITED,
    name: 'rate_limited_expiry',
    key: { expiresAt: 1 },
    expireAfterSeconds: 0,
  },
];

/* How a record keeps facts: in words for people, and in codes for programs. */

/** Why an attempt failed. */
type FailureCode =
  | 'account_missing'
  | 'account_released'
  | 'account_changed'
  /** `of` the relay's code and status. */
  | 'mail_refused'
  /** `of` what the mailer tells, such as `ECONNRESET`. */
  | 'mail_unanswered'
  | 'mails_unknown'
  | 'relay_unasked'
  /** `of` what the mailer tells, such as `EAUTH AUTH PLAIN 535`. */
  | 'relay_unusable'
  /** `of` the name of the error. */
  | 'step_failed'
  | 'workers_died';

/** Its words hold no personal data, because support reads them. */
export type Fact = Fault<
  | FailureCode
  /** `of` the order's `--why`. */
  | 'resent_with_many'
  /** Of a move that needs no code of its own. */
  | Event
>;

/** Older versions have stored the words alone. */
export type StoredFact = Pick<Fact, 'words'> & Partial<Fact>;

/** Words alone have the event of the move as their code. */
export const asFact = (event: Event, reason: string | Fact): Fact =>
  typeof reason === 'string' ? { code: event, words: reason } : reason;

export const asReason = ({ words: reason, code, of }: Fact) => ({
  reason,
  code,
  ...defined({ of }),
});

interface LastError {
  readonly lastError?: string;
  readonly lastFact?: Fact;
}

export const asLastError = (fact: Fact): LastError => ({ lastError: fact.words, lastFact: fact });

/** States that `lastError` explains; in others it is left from an earlier attempt. */
export const WITH_ERROR: readonly State[] = [...openStates, 'undeliverable', 'dead_lettered'];

/** An older version may have written the last error since. */
export const lastFactOf = ({ lastError: words, lastFact }: LastError): StoredFact | undefined =>
  words === undefined || lastFact?.words === words ? lastFact : { words };

/** The same in an aggregation. */
export const LAST_FACT = {
  $cond: [{ $eq: ['$lastFact.words', '$lastError'] }, '$lastFact', { words: '$lastError' }],
} as const;

/* Builds the record of a request, whether it is accepted, malformed or refused. */

const KEPT_HEADER_CHARACTERS = 256;

export interface Received {
  readonly requestId: string;
  readonly receivedAt: Date;
  readonly remoteIp: string;
  readonly partnerId: string | undefined;
  readonly keyId?: string | undefined;
  readonly test?: true | undefined;
  readonly userAgent?: string | undefined;
  readonly contentType?: string | undefined;
  readonly traceparent?: string | undefined;
}

interface Result {
  readonly state: 'recorded' | 'malformed' | 'refused';
  readonly httpStatus: number;
  readonly body?: { readonly bytes: Uint8Array; readonly received: number };
  readonly idempotencyKey?: string | undefined;
  /** Normalised. */
  readonly applicant?: Applicant | undefined;
  /** When reconcile first looks at an accepted request. */
  readonly dueInMs?: number | undefined;
  readonly probe?: ProbeKind | undefined;
  /** How long any other request is kept. */
  readonly keptDays?: number;
}

export function newRecord(received: Received, result: Result): SubmissionRecord {
  const { requestId, receivedAt, remoteIp, partnerId, test, traceparent } = received;
  const { state, httpStatus, body, idempotencyKey, applicant, keptDays, probe } = result;
  const { dueInMs = FIRST_DUE_MS } = result;
  const record: { -readonly [Name in keyof SubmissionRecord]: SubmissionRecord[Name] } = {
    _id: requestId,
    receivedAt,
    remoteIp,
    bodyBytes: body?.received ?? 0,
    httpStatus,
    schema: RECORD_SCHEMA,
    state,
    stateAt: receivedAt,
    version: 0,
    attempts: 0,
    history: [{ state, at: receivedAt, attempt: 0 }],
  };
  const userAgent = received.userAgent?.slice(0, KEPT_HEADER_CHARACTERS);
  const contentType = received.contentType?.slice(0, KEPT_HEADER_CHARACTERS);
  if (partnerId !== undefined) record.partnerId = partnerId;
  if (test !== undefined) record.test = test;
  if (probe !== undefined) record.probe = probe;
  if (userAgent !== undefined) record.userAgent = userAgent;
  if (contentType !== undefined) record.contentType = contentType;
  if (traceparent !== undefined) record.traceparent = traceparent;
  if (body !== undefined) {
    record.body = new Binary(body.bytes);
    record.bodySha256 = hash('sha256', body.bytes, 'hex');
  }
  if (applicant !== undefined) record.applicant = applicant;
  if (idempotencyKey !== undefined) {
    const owner = ownerName(partnerId ?? '', received);
    record.idempotencyDigest = idempotencyDigest(owner, idempotencyKey);
  }
  const at = (ms: number): Date => new Date(receivedAt.getTime() + ms);
  if (keptDays === undefined) record.dueAt = at(dueInMs);
  else record.expiresAt = at(keptDays * DAY_MS);
  if (keptDays !== undefined && received.keyId !== undefined) record.keyId = received.keyId;
  return record;
}

/**
 * The scope is the owner (a partner, or its tests), so rotating an API key changes nothing
 * (docs/decisions/0019). Another operation must put its name and a line feed before the key; owners
 * and keys contain none.
 */
export const idempotencyDigest = (owner: string, key: string): string =>
  hash('sha256', `${owner}\n${key}`, 'hex');
