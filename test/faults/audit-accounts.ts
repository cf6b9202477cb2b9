/**
 * The part of the audit about outcomes: every record final, every applicant with exactly one
 * account, every refusal true.
 */
import type { Account } from '../../internal/account/account.ts';
import { MAX_AMBIGUOUS } from '../../internal/processor/limits.ts';
import { openStates, type State } from '../../internal/submission/states.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import type { AuditView } from './audit.ts';
import type { LedgerEntry } from './ledger.ts';

/** States of a record that made an account. */
const OWNING: ReadonlySet<string> = new Set(['account_created', 'completed', 'undeliverable']);

export function checkOutcome(
  record: SubmissionRecord,
  entry: LedgerEntry | undefined,
  view: AuditView,
): void {
  const phase = view.phaseOf(record._id);
  if ((openStates as readonly string[]).includes(record.state)) {
    view.violation(
      'stuck',
      phase,
      record._id,
      `still ${record.state}, version ${record.version}: ${record.lastError ?? 'no error'}`,
    );
  }
  const states = record.history.map(({ state }) => state);
  if (new Set(states).size !== states.length && !view.facts.reopened.has(record._id)) {
    view.violation('repeated_state', phase, record._id, states.join(' > '));
  }
  checkExcuse(record, entry, view);
  const account = view.accountByRequest.get(record._id);
  if (OWNING.has(record.state) && (account === undefined || account._id !== record.accountId)) {
    view.violation(
      'missing_account',
      phase,
      record._id,
      `${record.state}, but its account is ${account?._id ?? 'absent'}`,
    );
  }
  if (account !== undefined && !OWNING.has(record.state) && !isOnItsWay(record)) {
    view.violation(
      'wrong_account',
      phase,
      record._id,
      `${record.state}, but it made ${account._id}`,
    );
  }
  if (entry?.kind === 'valid') checkValid(record, entry, view);
  if (
    entry?.kind === 'invalid' &&
    record.state === 'rejected' &&
    record.reasons?.some(isDuplicate) !== false
  ) {
    view.violation(
      'wrong_reason',
      phase,
      record._id,
      'its fields were invalid, which no reason says',
    );
  }
  if (entry?.kind === 'invalid' && (OWNING.has(record.state) || record.state === 'dead_lettered')) {
    view.violation(
      'wrong_state',
      phase,
      record._id,
      `its fields were invalid, but it is ${record.state}`,
    );
  }
}

/** Those that are reported as stuck, or given up until an operator decides. */
function isOnItsWay({ state }: SubmissionRecord): boolean {
  return state === 'recorded' || state === 'dead_lettered';
}

function isDuplicate({ code }: { readonly code: string }): boolean {
  return code === 'duplicate_email' || code === 'duplicate_ein';
}

/** Without a fault that explains it, every mail arrives. */
function checkExcuse(
  record: SubmissionRecord,
  entry: LedgerEntry | undefined,
  view: AuditView,
): void {
  const { refused, ambiguous, processorStops } = view.facts;
  const email = entry?.applicant?.email ?? '';
  const mails =
    view.accounts.find(({ requestId }) => requestId === record._id)?.mail?.possible ?? 0;
  const givenUp = ambiguous.has(email) || (processorStops.length > 0 && mails >= MAX_AMBIGUOUS);
  const excused: Partial<Record<State, boolean>> = {
    undeliverable: view.allows.has('undeliverable') && refused.has(email),
    dead_lettered: view.allows.has('dead_letter') && givenUp,
  };
  if (excused[record.state] === false) {
    const words = `${record.state}, which no fault explains: ${record.lastError ?? 'no error'}`;
    view.violation('unexplained_failure', view.phaseOf(record._id), record._id, words);
  }
}

/**
 * A valid application ends with an account of its own, or as a duplicate that names who was first.
 */
function checkValid(record: SubmissionRecord, entry: LedgerEntry, view: AuditView): void {
  const { applicant, phase } = entry;
  if (applicant === undefined || record.state !== 'rejected') return;
  const reasons = record.reasons ?? [];
  if (reasons.length === 0 || !reasons.every(isDuplicate)) {
    view.violation(
      'wrong_reason',
      phase,
      record._id,
      `valid, but rejected: ${JSON.stringify(reasons)}`,
    );
  }
  for (const { code, duplicateOf = '' } of reasons) {
    const first = view.accountByRequest.get(duplicateOf);
    const same =
      code === 'duplicate_email'
        ? first?.emailNormalized === applicant.email
        : first?.ein === applicant.ein;
    if (duplicateOf === record._id || !same) {
      view.violation(
        'wrong_reason',
        phase,
        record._id,
        `${code} of "${duplicateOf}", which owns ${first?._id ?? 'nothing'}`,
      );
    }
  }
}

/**
 * Never two accounts for one e-mail, EIN or request; at least one for an applicant who applied with success.
 */
export function checkAccounts(view: AuditView): void {
  const byEmail = groups(view.accounts, (account) => account.emailNormalized);
  const byEin = groups(view.accounts, (account) => account.ein);
  const byRequest = groups(view.accounts, (account) => account.requestId);
  for (const [what, grouped] of [
    ['e-mail', byEmail],
    ['EIN', byEin],
    ['request', byRequest],
  ] as const) {
    for (const [key, accounts] of grouped) {
      if (accounts.length === 1) continue;
      const phase = view.phaseOf(accounts[0]?.requestId ?? '');
      view.counts(phase).doubledAccounts += accounts.length - 1;
      view.violation(
        'doubled_account',
        phase,
        accounts.map(({ _id }) => _id).join(', '),
        `the same ${what} ${key}`,
      );
    }
  }
  for (const account of view.accounts) {
    const record = view.byId.get(account.requestId);
    if (record === undefined) {
      view.violation(
        'wrong_account',
        view.phaseOf(account.requestId),
        account._id,
        `its request ${account.requestId} has no record`,
      );
    }
  }
  for (const entry of view.ledger) {
    const { applicant, answer } = entry;
    if (applicant === undefined || answer?.status !== 202) continue;
    // Either key will do: where both are someone else's, the application is a duplicate of two
    // accounts.
    if (!byEmail.has(applicant.email) && !byEin.has(applicant.ein)) {
      view.violation(
        'missing_account',
        entry.phase,
        answer.requestId ?? '',
        `no account has ${applicant.email} or ${applicant.ein}`,
      );
    }
  }
}

function groups(
  accounts: readonly Account[],
  keyOf: (account: Account) => string,
): Map<string, Account[]> {
  const grouped = new Map<string, Account[]>();
  for (const account of accounts)
    grouped.set(keyOf(account), [...(grouped.get(keyOf(account)) ?? []), account]);
  return grouped;
}
