/**
 * A record as programs get it from `--json` and `export`: the partner's names, and personal data
 * only when revealed.
 */
import { parseJsonObject } from '../application/parse-application.ts';
import { defined } from '../platform/defined.ts';
import type { Applicant, SubmissionRecord } from '../submission/submission.ts';
import { maskApplicant } from './mask.ts';

export function viewOf(record: SubmissionRecord, reveal: boolean): Record<string, unknown> {
  const { applicant, body } = record;
  return {
    request_id: record._id,
    state: record.state,
    received_at: record.receivedAt,
    state_at: record.stateAt,
    ...defined({ partner: record.partnerId }),
    http_status: record.httpStatus,
    ...(applicant === undefined ? {} : { applicant: applicantView(applicant, reveal) }),
    ...defined({
      reasons: record.reasons?.map(({ field, code, message, duplicateOf }) => ({
        field,
        code,
        message,
        ...defined({ duplicate_of: duplicateOf }),
      })),
    }),
    ...defined({ account_id: record.accountId }),
    attempts: record.attempts,
    ...defined({ ambiguous: record.ambiguous }),
    ...defined({ last_error: record.lastError }),
    ...defined({ next_attempt_at: record.dueAt }),
    history: record.history,
    remote_ip: record.remoteIp,
    ...defined({ content_type: record.contentType }),
    ...defined({ user_agent: record.userAgent }),
    body_bytes: record.bodyBytes,
    // Whoever knows all but an EIN of nine digits guesses it from the digest.
    ...(reveal ? defined({ body_sha256: record.bodySha256 }) : {}),
    ...(reveal && body !== undefined ? { body: Buffer.from(body.buffer).toString('utf8') } : {}),
    ...(record.idempotencyDigest === undefined
      ? {}
      : { idempotency_key: true, sent_again: record.adopted === true }),
    ...defined({ trace_id: traceIdOf(record) }),
    ...defined({ erased_at: record.erasedAt }),
    ...defined({ expires_at: record.expiresAt }),
  };
}

/** The names of the partner's own request. */
export function applicantView(applicant: Applicant, reveal: boolean): Record<string, unknown> {
  const { email, ein, businessName } = maskApplicant(applicant, reveal);
  return {
    ...defined({ email: email }),
    ...defined({ business_name: businessName }),
    ...defined({ ein: ein }),
  };
}

/** The trace that began with the request, for the tracing system's search. */
export function traceIdOf(record: Pick<SubmissionRecord, 'traceparent'>): string | undefined {
  return record.traceparent?.split('-')[1];
}

/** Whether the kept bytes are a JSON object, told to a person. */
export function bodyInWords(record: SubmissionRecord): string {
  const { body, bodyBytes } = record;
  if (record.erasedAt !== undefined) return `${bodyBytes} bytes, erased`;
  if (body === undefined) return bodyBytes === 0 ? 'not read' : `${bodyBytes} bytes, not kept`;
  const kind = parseJsonObject(body.buffer) === undefined ? 'not a JSON object' : 'a JSON object';
  const kept = body.length() < bodyBytes ? `, of which ${body.length()} are kept` : '';
  return `${bodyBytes} bytes${kept}, ${kind}`;
}
