/** Records of ingest for tests of the store. */
import { claimsOf, normalizedApplicant } from '../../internal/application/fields.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import {
  newRecord as recordOfRequest,
  type SubmissionRecord,
} from '../../internal/submission/submission.ts';
import type { RetentionDays } from '../../internal/submission/states.ts';

export const retention: RetentionDays = {
  completed: 400,
  rejected: 90,
  undeliverable: 400,
  closed: 400,
  body: 30,
};

export function newRecord(changes: Partial<SubmissionRecord> = {}, text = '{}'): SubmissionRecord {
  const bytes = Buffer.from(text);
  const { _id: requestId = newId('req', new Date()), receivedAt = new Date() } = changes;
  const received = { requestId, receivedAt, partnerId: 'demo', remoteIp: '127.0.0.1' };
  const body = { bytes, received: bytes.length };
  const record = recordOfRequest(received, { state: 'recorded', httpStatus: 202, body });
  return { ...record, ...changes };
}

/** A record as ingest stores it, received at `receivedAt` with `fields` as its body. */
export function recordOf(
  fields: object,
  receivedAt: Date,
  more: Partial<SubmissionRecord> = {},
): SubmissionRecord {
  const applicant = normalizedApplicant(claimsOf(fields));
  return newRecord({ receivedAt, applicant, ...more }, JSON.stringify(fields));
}

/** A clock that the test moves. It starts at the present time, which TTL indexes use. */
export function newTestClock() {
  let ms = Date.now();
  return {
    now: () => new Date(ms),
    monotonicMs: () => ms,
    advance: (by: number): void => {
      ms += by;
    },
  };
}
