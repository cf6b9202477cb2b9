/** A record and its account as JSON, with partners' field names, and masked unless revealed. */
import { linkState, type Account } from '../account/account.ts';
import { parseJsonObject } from '../application/parse-application.ts';
import { defined } from '../platform/defined.ts';
import type { Applicant, SubmissionRecord } from '../submission/submission.ts';
import { SENT_SHOWN } from './limits.ts';
import { maskApplicant, maskText } from './mask.ts';
import { errorOf } from './reasons.ts';

export function recordJson(record: SubmissionRecord, reveal: boolean): Record<string, unknown> {
  const { applicant, body } = record;
  return {
    request_id: record._id,
    state: record.state,
    received_at: record.receivedAt,
    state_at: record.stateAt,
    ...defined({ partner: record.partnerId }),
    http_status: record.httpStatus,
    ...(applicant === undefined ? {} : { applicant: applicantJson(applicant, reveal) }),
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
    ...defined({ last_error: errorOf(record) }),
    ...defined({ next_attempt_at: record.dueAt }),
    history: record.history,
    remote_ip: record.remoteIp,
    ...defined({ content_type: record.contentType }),
    ...defined({ user_agent: record.userAgent }),
    body_bytes: record.bodyBytes,
    ...defined({ sent: sentInWords(record) }),
    // With all but a nine-digit EIN known, the digest reveals it.
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

export function accountJson(account: Account, reveal: boolean, now: Date): Record<string, unknown> {
  return {
    account_id: account._id,
    ...applicantJson(account.released ?? account, reveal),
    created_at: account.createdAt,
    ...defined({ notified_at: account.notifiedAt }),
    link: linkState(account, now),
    ...defined({ link_expires_at: account.activation?.expiresAt }),
    ...defined({ link_used_at: account.activation?.usedAt }),
    ...defined({ released_at: account.releasedAt }),
    ...defined({ mail: account.mail }),
  };
}

function applicantJson(applicant: Applicant, reveal: boolean): Record<string, unknown> {
  const { email, ein, businessName } = maskApplicant(applicant, reveal);
  return defined({ email, business_name: businessName, ein });
}

export function traceIdOf(record: Pick<SubmissionRecord, 'traceparent'>): string | undefined {
  return record.traceparent?.split('-')[1];
}

export function bodyInWords(record: SubmissionRecord): string {
  const { body, bodyBytes } = record;
  if (record.erasedAt !== undefined) return `${bodyBytes} bytes, erased`;
  if (body === undefined) return bodyBytes === 0 ? 'not read' : `${bodyBytes} bytes, not kept`;
  const kind = parseJsonObject(body.buffer) === undefined ? 'not a JSON object' : 'a JSON object';
  const kept = body.length() < bodyBytes ? `, of which ${body.length()} are kept` : '';
  return `${bodyBytes} bytes${kept}, ${kind}`;
}

/** The shape of what a malformed request sent, always masked. */
export function sentInWords({ state, body }: SubmissionRecord): string | undefined {
  if (state !== 'malformed' || body === undefined || body.length() === 0) return undefined;
  const text = Buffer.from(body.buffer.subarray(0, SENT_SHOWN)).toString('utf8');
  return maskText(text) + (body.length() > SENT_SHOWN ? '…' : '');
}
