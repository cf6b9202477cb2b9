/** Joins the client's ledger with database and mails, and finds what is lost, doubled or untrue. */
import type { Account } from '../../internal/account/account.ts';
import type { Kind } from '../../internal/self-audit/rules.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { checkAnswer, checkKeys } from './audit-answers.ts';
import { checkMails } from './audit-mails.ts';
import { checkAccounts, checkOutcome } from './audit-outcomes.ts';
import type { RunFacts, SentMail } from './facts.ts';
import type { Allowance } from './fault.ts';
import { FAULT_USER_AGENT, userAgentOf, type LedgerEntry } from './ledger.ts';

export interface AuditInput {
  readonly ledger: readonly LedgerEntry[];
  readonly records: readonly SubmissionRecord[];
  readonly accounts: readonly Account[];
  readonly mails: readonly SentMail[];
  readonly facts: RunFacts;
  /** Findings that the faults of this run allow (list.ts). */
  readonly allows: ReadonlySet<Allowance>;
}

type ViolationKind =
  | Kind
  | 'lost'
  | 'altered'
  | 'wrong_state'
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
  /** A request_id, an account id or an e-mail address. */
  readonly id: string;
  readonly words: string;
}

export const counted = [
  'requests',
  'accepted',
  'malformed',
  'refused',
  'failed',
  /** Requests without an answer, except those that the client cut. */
  'noAnswer',
  'lost',
  /** Requests that were answered 500 and processed. */
  'untrueFailed',
  'doubledAccounts',
  'secondMails',
  /** Withdrawn records with a body (the late write landed), and without. */
  'withdrawnLanded',
  'withdrawnAbsent',
] as const;
export type Counted = (typeof counted)[number];
type Counts = Readonly<Record<Counted, number>>;

export interface AuditResult {
  readonly phases: ReadonlyMap<string, Counts>;
  readonly total: Counts;
  readonly violations: readonly Violation[];
  /** Findings in a documented window, which are allowed and listed. */
  readonly windows: readonly (Omit<Violation, 'kind'> & { readonly of: Allowance })[];
}

export interface AuditView extends AuditInput {
  readonly byId: ReadonlyMap<string, SubmissionRecord>;
  readonly byAgent: ReadonlyMap<string | undefined, readonly SubmissionRecord[]>;
  readonly accountByRequest: ReadonlyMap<string, Account>;
  phaseOf(requestId: string): string;
  recordOf(entry: LedgerEntry): SubmissionRecord | undefined;
  /** Returns a reporter of violations about `id`. */
  about(phase: string, id: string): (kind: ViolationKind, words: string) => void;
  window(of: Allowance, phase: string, id: string, words: string): void;
  count(phase: string, what: Counted, number?: number): void;
}

/** The phase of findings without a request. */
export const UNKNOWN_PHASE = '(not joined)';

const zero = (): Record<Counted, number> =>
  Object.fromEntries(counted.map((name) => [name, 0])) as Record<Counted, number>;

export function audit(input: AuditInput): AuditResult {
  const phases = new Map<string, Record<Counted, number>>();
  const total = zero();
  const violations: Violation[] = [];
  const windows: AuditResult['windows'][number][] = [];
  const byId = new Map(input.records.map((record) => [record._id, record]));
  const byAgent = Map.groupBy(input.records, ({ userAgent }) => userAgent);
  const entryOf = new Map<string, LedgerEntry>();
  const view: AuditView = {
    ...input,
    byId,
    byAgent,
    accountByRequest: new Map(input.accounts.map((account) => [account.requestId, account])),
    phaseOf: (requestId) => entryOf.get(requestId)?.phase ?? UNKNOWN_PHASE,
    recordOf: ({ answer, n }) =>
      byId.get(answer?.xRequestId ?? '') ?? byAgent.get(userAgentOf(n))?.[0],
    about: (phase, id) => (kind, words) => void violations.push({ kind, phase, id, words }),
    window(of, phase, id, words) {
      windows.push({ of, phase, id, words });
      if (!input.allows.has(of))
        view.about(phase, id)('not_allowed', `no fault of this run allows it: ${words}`);
    },
    count(phase, what, number = 1) {
      if (!phases.has(phase)) phases.set(phase, zero());
      phases.get(phase)![what] += number;
      total[what] += number;
    },
  };

  for (const entry of input.ledger) join(entry, entryOf, view);
  for (const entry of input.ledger) checkAnswer(entry, view);
  for (const record of input.records) {
    const { _id: id, state, userAgent } = record;
    const landed = record.body === undefined ? 'withdrawnAbsent' : 'withdrawnLanded';
    // A withdrawal without an answer has no request to join.
    if (state === 'withdrawn') view.count(view.phaseOf(id), landed);
    const ofFault = userAgent === FAULT_USER_AGENT && state === 'refused';
    if (!entryOf.has(id) && state !== 'withdrawn' && !ofFault)
      view.about(UNKNOWN_PHASE, id)('stray_record', `nobody sent it: ${userAgent}`);
    checkOutcome(record, entryOf.get(id), view);
  }
  checkAccounts(view);
  checkMails(view);
  checkKeys(view);
  return { phases, total, violations, windows };
}

/** Joins a request with its records; only a key joins several requests with one. */
function join(entry: LedgerEntry, entryOf: Map<string, LedgerEntry>, view: AuditView): void {
  const stored = view.byAgent.get(userAgentOf(entry.n)) ?? [];
  for (const { _id } of stored) entryOf.set(_id, entry);
  const ids = stored.map(({ _id }) => _id).join(', ');
  if (stored.length > 1)
    view.about(entry.phase, ids)('doubled_record', `all of request ${entry.n}`);
  const id = entry.answer?.xRequestId;
  if (id === undefined) return;
  const other = entryOf.get(id);
  const sameKey =
    other?.idempotencyKey !== undefined && other.idempotencyKey === entry.idempotencyKey;
  if (sameKey) return;
  if (other !== undefined && other !== entry)
    view.about(entry.phase, id)('doubled_id', `of requests ${other.n} and ${entry.n}`);
  entryOf.set(id, entry);
}
