/** The part of the audit about answers: what a partner was told, against what is stored. */
import { createHash } from 'node:crypto';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import type { AuditView } from './audit.ts';
import { CLIENT_GAVE_UP, type Answer, type LedgerEntry } from './ledger.ts';

/** The contract's limit; of a larger body this many bytes are kept. */
const KEPT_BYTES = 65_000;

export function checkAnswer(entry: LedgerEntry, view: AuditView): void {
  const counts = view.counts(entry.phase);
  counts.requests += 1;
  const { answer } = entry;
  if (answer === undefined) {
    if (entry.kind !== 'cut') counts.noAnswer += 1;
    if (entry.failure?.error === CLIENT_GAVE_UP) {
      view.violation(
        'left_open',
        entry.phase,
        `request ${entry.n}`,
        'neither an answer nor the end of its connection',
      );
    }
    checkUnanswered(entry, view);
    return;
  }
  const id = answer.xRequestId ?? `request ${entry.n}`;
  if (answer.xRequestId === undefined) {
    view.violation('wrong_answer', entry.phase, id, `a ${answer.status} without X-Request-Id`);
  }
  switch (answer.status) {
    case 202:
      counts.accepted += 1;
      if (answer.replayed === true) counts.replayed += 1;
      if (entry.kind !== 'valid' && entry.kind !== 'invalid') wrongAnswer(entry, id, view);
      checkKept(entry, answer, view);
      break;
    case 400:
      counts.malformed += 1;
      if (entry.kind !== 'malformed') wrongAnswer(entry, id, view);
      checkKept(entry, answer, view);
      break;
    case 401:
    case 403:
      counts.refused += 1;
      if (entry.kind !== 'unauthorized') wrongAnswer(entry, id, view);
      checkRefused(entry, id, view);
      break;
    case 422:
      counts.mismatched += 1;
      if (entry.idempotencyKey === undefined) wrongAnswer(entry, id, view);
      break;
    case 500:
      counts.failed += 1;
      checkFailed(entry, id, view);
      break;
    default:
      wrongAnswer(entry, id, view);
  }
}

function wrongAnswer(entry: LedgerEntry, id: string, view: AuditView): void {
  view.violation(
    'wrong_answer',
    entry.phase,
    id,
    `${entry.kind} was answered ${entry.answer?.status}`,
  );
}

/**
 * A 202 or 400 promises a record under its request_id, with the same bytes, in a state of its
 * class.
 */
function checkKept(entry: LedgerEntry, answer: Answer, view: AuditView): void {
  const { requestId = '', xRequestId = '' } = answer;
  if (requestId === '' || requestId !== xRequestId) {
    view.violation(
      'wrong_answer',
      entry.phase,
      xRequestId,
      `its body says request_id "${requestId}"`,
    );
  }
  const record = view.byId.get(requestId);
  if (record === undefined) {
    view.counts(entry.phase).lost += 1;
    view.violation(
      'lost',
      entry.phase,
      requestId,
      `answered ${answer.status}, but there is no record`,
    );
    return;
  }
  checkBytes(entry, record, view);
  const malformed = answer.status === 400;
  if (
    record.httpStatus !== answer.status ||
    (record.state === 'malformed') !== malformed ||
    isNoWork(record)
  ) {
    const words = `answered ${answer.status}, but the record is ${record.state} with status ${record.httpStatus}`;
    view.violation('wrong_state', entry.phase, requestId, words);
  }
}

function isNoWork({ state }: SubmissionRecord): boolean {
  return state === 'withdrawn' || state === 'refused';
}

function checkBytes(entry: LedgerEntry, record: SubmissionRecord, view: AuditView): void {
  const kept = entry.body.subarray(0, KEPT_BYTES);
  const sha256 = createHash('sha256').update(kept).digest('hex');
  const stored = record.body === undefined ? undefined : Buffer.from(record.body.value());
  if (
    stored?.equals(kept) === true &&
    record.bodyBytes === entry.body.length &&
    record.bodySha256 === sha256
  ) {
    return;
  }
  const words = `${entry.body.length} bytes (${sha256}) were sent, ${record.bodyBytes} (${record.bodySha256}) are stored`;
  view.violation('altered', entry.phase, record._id, words);
}

/** 500 means not accepted: no record, or a withdrawn one, and no account. */
function checkFailed(entry: LedgerEntry, id: string, view: AuditView): void {
  const record = view.recordOf(entry);
  const account = view.accountByRequest.get(record?._id ?? id);
  // Adopted: its partner sent it again with the key, and was told of this record.
  const gone = record === undefined || record.state === 'withdrawn' || isAdopted(entry, record);
  if (gone && (account === undefined || isAdopted(entry, record))) return;
  view.counts(entry.phase).untrueFailed += 1;
  const words = `answered 500, but the record is ${record?.state ?? 'absent'} and ${account === undefined ? 'no account' : account._id} was made`;
  if (!gone && view.facts.killedIngest.has(entry.instance)) {
    view.counts(entry.phase).windowProcessed += 1;
    view.window(
      'processed_after_500',
      'processed after its 500: ingest was killed before it could withdraw',
      entry.phase,
      id,
    );
  } else {
    view.violation('processed_after_500', entry.phase, id, words);
  }
}

function isAdopted({ idempotencyKey }: LedgerEntry, record: SubmissionRecord | undefined): boolean {
  return idempotencyKey !== undefined && record?.adopted === true;
}

/** Turned away at ingest: at most a record that says so, without a body. */
function checkRefused(entry: LedgerEntry, id: string, view: AuditView): void {
  const record = view.recordOf(entry);
  if (record !== undefined && (record.state !== 'refused' || record.body !== undefined)) {
    view.violation(
      'wrong_state',
      entry.phase,
      id,
      `answered ${entry.answer?.status}, but the record is ${record.state}`,
    );
  }
}

/** Without an answer everything is allowed but other bytes than were sent. */
function checkUnanswered(entry: LedgerEntry, view: AuditView): void {
  const record = view.recordOf(entry);
  if (record === undefined || record.body === undefined) return;
  view.counts(entry.phase).storedWithoutAnswer += 1;
  if (entry.kind !== 'cut') {
    checkBytes(entry, record, view);
    return;
  }
  const stored = Buffer.from(record.body.value());
  if (!entry.body.subarray(0, stored.length).equals(stored)) {
    view.violation(
      'altered',
      entry.phase,
      record._id,
      'the record of a body that was cut off holds other bytes',
    );
  }
  if (record.state !== 'malformed' && record.state !== 'withdrawn') {
    view.violation(
      'wrong_state',
      entry.phase,
      record._id,
      `its body was cut off, but it is ${record.state}`,
    );
  }
}
