/** Builds the record of a request, whether it is accepted, malformed or refused. */
import { hash } from 'node:crypto';
import { Binary } from 'mongodb';
import type { Applicant } from '../application/fields.ts';
import type { ProbeKind } from '../application/sandbox-endings.ts';
import { ownerName } from '../partner/key-terms.ts';
import { DAY_MS } from '../platform/process/clock.ts';
import { idempotencyDigest } from './idempotency.ts';
import { FIRST_DUE_MS, RECORD_SCHEMA, type SubmissionRecord } from './submission.ts';

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
