/** Builds the records of accepted, malformed and refused requests. */
import { hash } from 'node:crypto';
import { Binary } from 'mongodb';
import { ownerName } from '../partner/mode.ts';
import { DAY_MS, later } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { idempotencyDigest } from './idempotency.ts';
import { FIRST_DUE_MS, RECORD_SCHEMA, type SubmissionRecord } from './submission.ts';

const KEPT_HEADER_CHARACTERS = 256;

export interface Received {
  readonly requestId: string;
  readonly receivedAt: Date;
  readonly remoteIp: string;
  readonly partnerId: string | undefined;
  readonly test?: true | undefined;
  readonly userAgent?: string | undefined;
  readonly contentType?: string | undefined;
  readonly traceparent?: string | undefined;
}

interface Body {
  readonly bytes: Uint8Array;
  readonly received: number;
}

export function acceptedRecord(
  received: Received,
  body: Body,
  idempotencyKey?: string,
  firstDueMs = FIRST_DUE_MS,
): SubmissionRecord {
  const { partnerId = '', receivedAt } = received;
  const owner = ownerName(partnerId, received);
  return {
    ...recordIn('recorded', received, body),
    ...(idempotencyKey === undefined
      ? {}
      : { idempotencyDigest: idempotencyDigest(owner, 'submitApplication', idempotencyKey) }),
    httpStatus: 202,
    dueAt: later(receivedAt, firstDueMs),
  };
}

export function malformedRecord(
  received: Received,
  body: Body,
  httpStatus: number,
  keptDays: number,
): SubmissionRecord {
  const expiresAt = later(received.receivedAt, keptDays * DAY_MS);
  return { ...recordIn('malformed', received, body), httpStatus, expiresAt };
}

export function refusedRecord(
  received: Received,
  httpStatus: number,
  keptDays: number,
): SubmissionRecord {
  return {
    ...recordIn('refused', received),
    httpStatus,
    expiresAt: later(received.receivedAt, keptDays * DAY_MS),
  };
}

function recordIn(state: 'recorded' | 'malformed' | 'refused', received: Received, body?: Body) {
  const { requestId, receivedAt, remoteIp, partnerId, test, userAgent, contentType, traceparent } =
    received;
  return {
    _id: requestId,
    receivedAt,
    remoteIp,
    ...defined({
      partnerId,
      test,
      userAgent: userAgent?.slice(0, KEPT_HEADER_CHARACTERS),
      contentType: contentType?.slice(0, KEPT_HEADER_CHARACTERS),
      traceparent,
    }),
    ...(body === undefined
      ? {}
      : { body: new Binary(body.bytes), bodySha256: hash('sha256', body.bytes, 'hex') }),
    bodyBytes: body?.received ?? 0,
    schema: RECORD_SCHEMA,
    state,
    stateAt: receivedAt,
    version: 0,
    attempts: 0,
    history: [{ state, at: receivedAt, attempt: 0 }],
  };
}
