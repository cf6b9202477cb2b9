/** Audits answers: what a partner was told against what is stored. */
import { createHash } from 'node:crypto';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import type { AuditView, Counted } from './audit.ts';
import {
  CLIENT_GAVE_UP,
  userAgentOf,
  type Answer,
  type LedgerEntry,
  type RequestKind,
} from './ledger.ts';

const KEPT_BYTES = 65_000;

/** For each status, its sentences and the kinds of requests that may get it. */
const answers: Readonly<
  Record<number, { readonly count?: Counted; readonly to?: readonly RequestKind[] }>
> = {
  202: { count: 'accepted', to: ['valid', 'invalid'] },
  400: { count: 'malformed', to: ['malformed'] },
  401: { count: 'refused', to: ['unauthorized'] },
  403: { count: 'refused', to: ['unauthorized'] },
  422: { to: ['valid'] },
  500: { count: 'failed' },
};

export function checkAnswer(entry: LedgerEntry, view: AuditView): void {
  const { answer, kind, phase } = entry;
  const id = answer?.xRequestId ?? `request ${entry.n}`;
  const wrong = view.about(phase, id);
  view.count(phase, 'requests');
  if (answer === undefined) {
    if (kind !== 'cut') view.count(phase, 'noAnswer');
    if (entry.failure?.error === CLIENT_GAVE_UP)
      wrong('left_open', 'neither an answer nor the end of its connection');
    checkUnanswered(entry, view);
    return;
  }
  const { status } = answer;
  if (answer.xRequestId === undefined) wrong('wrong_answer', `a ${status} without X-Request-Id`);
  const known = answers[status];
  if (known?.count !== undefined) view.count(phase, known.count);
  const keyless = status === 422 && entry.idempotencyKey === undefined;
  if (known === undefined || known.to?.includes(kind) === false || keyless)
    wrong('wrong_answer', `${kind} was answered ${status}`);
  if (status === 202 || status === 400) checkKept(entry, answer, view);
  else if (status === 500) checkFailed(entry, id, view);
  else if (known?.count === 'refused') {
    const record = view.recordOf(entry);
    // There may be a record of the refusal, without a body.
    if (record !== undefined && (record.state !== 'refused' || record.body !== undefined))
      wrong('wrong_state', `answered ${status}, but the record is ${record.state}`);
  }
}

/** A 202 or 400 promises a record with its request_id and body, in a fitting state. */
function checkKept(entry: LedgerEntry, answer: Answer, view: AuditView): void {
  const { requestId = '', xRequestId = '', status } = answer;
  const wrong = view.about(entry.phase, requestId);
  if (requestId === '' || requestId !== xRequestId)
    wrong('wrong_answer', `X-Request-Id is "${xRequestId}"`);
  const record = view.byId.get(requestId);
  if (record === undefined) {
    view.count(entry.phase, 'lost');
    wrong('lost', `answered ${status}, but there is no record`);
    return;
  }
  checkBytes(entry, record, view);
  const { state, httpStatus } = record;
  const fits = (state === 'malformed') === (status === 400) && httpStatus === status;
  if (!fits || state === 'withdrawn' || state === 'refused')
    wrong('wrong_state', `answered ${status}, but it is ${state} with status ${httpStatus}`);
}

function checkBytes(entry: LedgerEntry, record: SubmissionRecord, view: AuditView): void {
  const kept = entry.body.subarray(0, KEPT_BYTES);
  const sha256 = createHash('sha256').update(kept).digest('hex');
  const stored = record.body === undefined ? undefined : Buffer.from(record.body.value());
  const { bodyBytes, bodySha256 } = record;
  const isSame = stored?.equals(kept) === true && bodyBytes === entry.body.length;
  if (isSame && bodySha256 === sha256) return;
  const words = `${entry.body.length} bytes (${sha256}) were sent, ${bodyBytes} (${bodySha256}) are stored`;
  view.about(entry.phase, record._id)('altered', words);
}

/** A 500 promises no record or a withdrawn one, and no account. */
function checkFailed(entry: LedgerEntry, id: string, view: AuditView): void {
  const record = view.recordOf(entry);
  const account = view.accountByRequest.get(record?._id ?? id);
  // The partner sent it again with the key and got this record.
  const adopted = entry.idempotencyKey !== undefined && record?.adopted === true;
  const gone = record === undefined || record.state === 'withdrawn';
  if (adopted || (gone && account === undefined)) return;
  view.count(entry.phase, 'untrueFailed');
  if (!gone && view.facts.killedIngest.has(entry.instance)) {
    const words = 'processed after its 500: ingest was killed before it could withdraw';
    view.window('processed_after_500', entry.phase, id, words);
    return;
  }
  const words = `answered 500, but the record is ${record?.state ?? 'absent'} and its account ${account?._id ?? 'too'}`;
  view.about(entry.phase, id)('processed_after_500', words);
}

/** Without an answer the stored bytes must be those that were sent. */
function checkUnanswered(entry: LedgerEntry, view: AuditView): void {
  const record = view.recordOf(entry);
  if (record?.body === undefined) return;
  if (entry.kind !== 'cut') {
    checkBytes(entry, record, view);
    return;
  }
  const wrong = view.about(entry.phase, record._id);
  const stored = Buffer.from(record.body.value());
  if (!entry.body.subarray(0, stored.length).equals(stored))
    wrong('altered', 'the record of a body that was cut off holds other bytes');
  if (record.state !== 'malformed' && record.state !== 'withdrawn')
    wrong('wrong_state', `its body was cut off, but it is ${record.state}`);
}

/** Each key has one open record and one request_id, and a 422 answers only a second body. */
export function checkKeys(view: AuditView): void {
  const keyed = view.ledger.filter((entry) => entry.idempotencyKey !== undefined);
  for (const [key = '', entries] of Map.groupBy(keyed, (entry) => entry.idempotencyKey)) {
    const wrong = view.about(entries[0]!.phase, key);
    const live = entries
      .flatMap(({ n }) => view.byAgent.get(userAgentOf(n)) ?? [])
      .filter(({ state }) => state !== 'withdrawn' && state !== 'malformed');
    if (live.length > 1)
      wrong('doubled_key', `has the live records ${live.map(({ _id }) => _id).join(', ')}`);
    const accepted = entries.filter(({ answer }) => answer?.status === 202);
    const ids = new Set(accepted.map(({ answer }) => answer?.requestId));
    if (ids.size > 1) wrong('doubled_key', `was answered 202 with ${[...ids].join(', ')}`);
    if (accepted.some(({ body }) => !body.equals(accepted[0]!.body)))
      wrong('doubled_key', 'was answered 202 for two bodies');
    for (const { answer, body } of entries) {
      if (answer?.status !== 422) continue;
      // The first record may be withdrawn by now.
      const first = view.byId.get(answer.requestId ?? '');
      const hasOther = entries.some(
        ({ n, body: sent }) => !sent.equals(body) && first?.userAgent === userAgentOf(n),
      );
      if (!hasOther && first?.state !== 'withdrawn')
        wrong('wrong_answer', `a 422 names ${answer.requestId}, which is no other body of it`);
    }
  }
}
