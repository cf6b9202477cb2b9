/** A record and its account as JSON, with partners' field names, and masked unless revealed. */
import { linkState, type Account } from '../../account/account.ts';
import { namedAsSent } from '../../application/fields.ts';
import { parseJsonObject } from '../../application/parse-application.ts';
import { defined } from '../../platform/process/defined.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import { storedErrorOf } from './words.ts';
import { maskApplicant, maskText } from './mask.ts';

/** The beginning of a malformed body shows what kind of thing it is. */
const SENT_SHOWN = 240;

export function recordJson(record: SubmissionRecord, reveal: boolean): Record<string, unknown> {
  const { applicant, body } = record;
  const hasKey = record.idempotencyDigest !== undefined;
  return defined({
    request_id: record._id,
    state: record.state,
    received_at: record.receivedAt,
    state_at: record.stateAt,
    partner: record.partnerId,
    key: record.keyId,
    test: record.test,
    http_status: record.httpStatus,
    applicant: applicant && namedAsSent(maskApplicant(applicant, reveal)),
    reasons: record.reasons?.map(({ field, code, message, duplicateOf }) =>
      defined({ field, code, message, duplicate_of: duplicateOf }),
    ),
    account_id: record.accountId,
    attempts: record.attempts,
    ambiguous: record.ambiguous,
    last_error: storedErrorOf(record),
    next_attempt_at: record.dueAt,
    history: record.history,
    remote_ip: record.remoteIp,
    content_type: record.contentType,
    user_agent: record.userAgent,
    body_bytes: record.bodyBytes,
    sent: sentInWords(record),
    // With all but a nine-digit EIN known, the digest reveals it.
    body_sha256: reveal ? record.bodySha256 : undefined,
    body: reveal && body !== undefined ? Buffer.from(body.buffer).toString('utf8') : undefined,
    idempotency_key: hasKey || undefined,
    sent_again: hasKey ? record.adopted === true : undefined,
    trace_id: traceIdOf(record),
    erased_at: record.erasedAt,
    expires_at: record.expiresAt,
  });
}

export function accountJson(account: Account, reveal: boolean, now: Date): Record<string, unknown> {
  return defined({
    account_id: account._id,
    ...namedAsSent(maskApplicant(account.released ?? account, reveal)),
    created_at: account.createdAt,
    notified_at: account.notifiedAt,
    link: linkState(account, now),
    link_expires_at: account.activation?.expiresAt,
    link_used_at: account.activation?.usedAt,
    released_at: account.releasedAt,
    mail: account.mail,
  });
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
