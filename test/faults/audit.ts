/**
 * Joins the client's ledger with the database and the mails, and says what is lost, doubled or
 * untrue. Pure.
 */
import type { Account } from '../../internal/account/account.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { checkAccounts, checkOutcome } from './audit-accounts.ts';
import { checkKeys } from './audit-keys.ts';
import { checkMails } from './audit-mails.ts';
import { checkAnswer } from './audit-records.ts';
import type { RunFacts, SentMail } from './facts.ts';
import type { Allowance } from './fault.ts';
import { FAULT_USER_AGENT, userAgentOf, type LedgerEntry } from './ledger.ts';

export interface AuditInput {
  readonly ledger: readonly LedgerEntry[];
  readonly records: readonly SubmissionRecord[];
  readonly accounts: readonly Account[];
  readonly mails: readonly SentMail[];
  readonly facts: RunFacts;
  /** What the faults of this run allow (list.ts): anything else that was excused is a violation. */
  readonly allows: ReadonlySet<Allowance>;
}

export type ViolationKind =
  | 'lost'
  | 'altered'
  | 'wrong_state'
  | 'wrong_answer'
  | 'left_open'
  | 'doubled_id'
  | 'doubled_record'
  | 'stray_record'
  | 'processed_after_500'
  | 'doubled_account'
  | 'missing_account'
  | 'wrong_account'
  | 'wrong_reason'
  | 'doubled_mail'
  | 'missing_mail'
  | 'stray_mail'
  | 'untrue_ledger'
  | 'stuck'
  | 'unexplained_failure'
  | 'repeated_state'
  | 'doubled_key'
  | 'not_allowed';

export interface Violation {
  readonly kind: ViolationKind;
  readonly phase: string;
  /** request_id, account id or e-mail address. */
  readonly id: string;
  readonly words: string;
}

/** Something that a documented window allows. */
export interface OpenWindow {
  readonly of: Allowance;
  readonly words: string;
  readonly phase: string;
  /** request_id. */
  readonly id: string;
}

export interface PhaseCounts {
  requests: number;
  accepted: number;
  malformed: number;
  /** 401 and 403. */
  refused: number;
  failed: number;
  /** Idempotency keys, and the requests that came with one. */
  keys: number;
  keyed: number;
  /** 422: the idempotency key has another body. */
  mismatched: number;
  /** 202 with the answer to an earlier request of the same key. */
  replayed: number;
  /** Without those that the client itself cut. */
  noAnswer: number;
  /** No answer, but a record: in the partner's eyes in doubt, in ours accepted. */
  storedWithoutAnswer: number;
  lost: number;
  doubledAccounts: number;
  /** Mails that came though one had come before, and those that may have by the mail ledger. */
  secondMails: number;
  possibleSecondMails: number;
  /**
   * Withdrawn records whose late write had landed (they have a body), and those the upsert made.
   */
  withdrawnLanded: number;
  withdrawnAbsent: number;
  /**
   * Answered 500 and processed all the same, and how many of these in the documented window: ingest
   * killed before its withdrawal.
   */
  untrueFailed: number;
  windowProcessed: number;
  undeliverable: number;
  deadLettered: number;
}

export interface AuditResult {
  readonly phases: ReadonlyMap<string, PhaseCounts>;
  readonly total: PhaseCounts;
  readonly violations: readonly Violation[];
  /** What happened within a documented window: allowed, and listed. */
  readonly windows: readonly OpenWindow[];
}

/** What the checks share. */
export interface AuditView extends AuditInput {
  readonly byId: ReadonlyMap<string, SubmissionRecord>;
  readonly accountByRequest: ReadonlyMap<string, Account>;
  phaseOf(requestId: string): string;
  recordOf(entry: LedgerEntry): SubmissionRecord | undefined;
  violation(kind: ViolationKind, phase: string, id: string, words: string): void;
  window(of: Allowance, words: string, phase: string, id: string): void;
  counts(phase: string): PhaseCounts;
}

/**
 * The phase of what cannot be joined with a request, such as the withdrawal of one that got no
 * answer.
 */
export const UNKNOWN_PHASE = '(not joined)';

export function audit(input: AuditInput): AuditResult {
  const phases = new Map<string, PhaseCounts>();
  const violations: Violation[] = [];
  const windows: OpenWindow[] = [];
  const byId = new Map(input.records.map((record) => [record._id, record]));
  const byAgent = new Map<string, SubmissionRecord[]>();
  for (const record of input.records) {
    if (record.userAgent === undefined) continue;
    byAgent.set(record.userAgent, [...(byAgent.get(record.userAgent) ?? []), record]);
  }
  const entryOf = new Map<string, LedgerEntry>();
  const counts = (phase: string): PhaseCounts => {
    if (!phases.has(phase)) phases.set(phase, zero());
    return phases.get(phase) as PhaseCounts;
  };
  const view: AuditView = {
    ...input,
    byId,
    accountByRequest: new Map(input.accounts.map((account) => [account.requestId, account])),
    phaseOf: (requestId) => entryOf.get(requestId)?.phase ?? UNKNOWN_PHASE,
    recordOf(entry) {
      const id = entry.answer?.xRequestId;
      return (
        (id === undefined ? undefined : byId.get(id)) ?? byAgent.get(userAgentOf(entry.n))?.[0]
      );
    },
    violation: (kind, phase, id, words) => void violations.push({ kind, phase, id, words }),
    window(of, words, phase, id) {
      windows.push({ of, words, phase, id });
      if (!input.allows.has(of))
        view.violation('not_allowed', phase, id, `no fault of this run allows it: ${words}`);
    },
    counts,
  };

  for (const entry of input.ledger) {
    const stored = byAgent.get(userAgentOf(entry.n)) ?? [];
    for (const { _id } of stored) entryOf.set(_id, entry);
    const id = entry.answer?.xRequestId;
    if (id !== undefined) {
      const other = entryOf.get(id);
      const sameKey =
        other?.idempotencyKey !== undefined && other.idempotencyKey === entry.idempotencyKey;
      if (other !== undefined && other !== entry && !sameKey) {
        view.violation(
          'doubled_id',
          entry.phase,
          id,
          `given to request ${other.n} and to request ${entry.n}`,
        );
      }
      if (!sameKey) entryOf.set(id, entry);
    }
    if (stored.length > 1) {
      const ids = stored.map(({ _id }) => _id).join(', ');
      view.violation(
        'doubled_record',
        entry.phase,
        ids,
        `request ${entry.n} has ${stored.length} records`,
      );
    }
  }
  for (const entry of input.ledger) checkAnswer(entry, view);
  for (const record of input.records) {
    countRecord(record, view);
    // A withdrawal of a request whose answer got lost knows nothing of who asked.
    const ofFault = record.userAgent === FAULT_USER_AGENT && record.state === 'refused';
    if (!entryOf.has(record._id) && record.state !== 'withdrawn' && !ofFault) {
      view.violation(
        'stray_record',
        UNKNOWN_PHASE,
        record._id,
        `nobody sent it: ${record.userAgent ?? 'no User-Agent'}`,
      );
    }
    checkOutcome(record, entryOf.get(record._id), view);
  }
  checkAccounts(view);
  checkMails(view);
  checkKeys(view);

  const total = zero();
  for (const phase of phases.values()) {
    for (const key of Object.keys(total) as (keyof PhaseCounts)[]) total[key] += phase[key];
  }
  return { phases, total, violations, windows };
}

function countRecord(record: SubmissionRecord, view: AuditView): void {
  const counts = view.counts(view.phaseOf(record._id));
  if (record.state === 'withdrawn' && record.body !== undefined) counts.withdrawnLanded += 1;
  if (record.state === 'withdrawn' && record.body === undefined) counts.withdrawnAbsent += 1;
  if (record.state === 'undeliverable') counts.undeliverable += 1;
  if (record.state === 'dead_lettered') counts.deadLettered += 1;
}

function zero(): PhaseCounts {
  return {
    requests: 0,
    accepted: 0,
    malformed: 0,
    refused: 0,
    failed: 0,
    keys: 0,
    keyed: 0,
    mismatched: 0,
    replayed: 0,
    noAnswer: 0,
    storedWithoutAnswer: 0,
    lost: 0,
    doubledAccounts: 0,
    secondMails: 0,
    possibleSecondMails: 0,
    withdrawnLanded: 0,
    withdrawnAbsent: 0,
    untrueFailed: 0,
    windowProcessed: 0,
    undeliverable: 0,
    deadLettered: 0,
  };
}
