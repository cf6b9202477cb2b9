/** Audits outcomes: every record final, one account for each applicant, every refusal justified. */
import type { Account } from '../../internal/account/account.ts';
import { isOpen, type State } from '../../internal/submission/states.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { checkAccount, checkAlone, kinds } from '../../internal/self-audit/rules.ts';
import type { AuditView } from './audit.ts';
import type { LedgerEntry } from './ledger.ts';
import { MAX_AMBIGUOUS } from '../../internal/processor/step.ts';

const OWNING: ReadonlySet<State> = new Set(['account_created', 'completed', 'undeliverable']);
const isDuplicate = ({ code }: { readonly code: string }): boolean =>
  code === 'duplicate_email' || code === 'duplicate_ein';

export function checkOutcome(
  record: SubmissionRecord,
  entry: LedgerEntry | undefined,
  view: AuditView,
): void {
  const { _id: id, state, reasons = [], lastError = 'no error' } = record;
  const wrong = view.about(view.phaseOf(id), id);
  if (isOpen(state)) wrong('stuck', `still ${state}, version ${record.version}: ${lastError}`);
  const states = record.history.map((one) => one.state);
  if (new Set(states).size !== states.length && !view.facts.reopened.has(id))
    wrong('repeated_state', states.join(' > '));
  if (!isExcused(record, entry, view))
    wrong('unexplained_failure', `${state}, which no fault explains: ${lastError}`);
  for (const kind of [
    ...checkAlone(record),
    ...checkAccount(record, view.accountByRequest.get(id)),
  ])
    if (kinds[kind].weight === 'problem') wrong(kind, `${state}: ${kinds[kind].meaning}`);
  if (entry?.kind === 'valid' && state === 'rejected') {
    if (reasons.length === 0 || !reasons.every(isDuplicate))
      wrong('wrong_reason', `valid, but rejected: ${JSON.stringify(reasons)}`);
    for (const { code, duplicateOf = '' } of reasons) {
      const first = view.accountByRequest.get(duplicateOf);
      const same =
        code === 'duplicate_email'
          ? first?.emailNormalized === entry.applicant?.email
          : first?.ein === entry.applicant?.ein;
      if (duplicateOf === id || !same)
        wrong('wrong_reason', `${code} of "${duplicateOf}", which owns ${first?._id}`);
    }
  }
  if (entry?.kind !== 'invalid') return;
  if (state === 'rejected' && (reasons.length === 0 || reasons.some(isDuplicate)))
    wrong('wrong_reason', 'its fields were invalid, which no reason says');
  if (OWNING.has(state) || state === 'dead_lettered')
    wrong('wrong_state', `its fields were invalid, but it is ${state}`);
}

/** Without a fault that explains it, every mail arrives. */
function isExcused(
  { _id: id, state }: SubmissionRecord,
  entry: LedgerEntry | undefined,
  { facts, allows, accountByRequest }: AuditView,
): boolean {
  const email = entry?.applicant?.email ?? '';
  if (state === 'undeliverable') return allows.has('undeliverable') && facts.refused.has(email);
  if (state !== 'dead_lettered') return true;
  const mails = accountByRequest.get(id)?.mail?.possible ?? 0;
  const stopped = facts.processorStops.length > 0 && mails >= MAX_AMBIGUOUS;
  return allows.has('dead_letter') && (facts.ambiguous.has(email) || stopped);
}

/** An e-mail, an EIN and a request have one account each, and an accepted applicant has one. */
export function checkAccounts(view: AuditView): void {
  const keys = ['emailNormalized', 'ein', 'requestId'] as const;
  for (const key of keys) {
    for (const [value, accounts] of Map.groupBy(view.accounts, (account) => account[key])) {
      if (accounts.length === 1) continue;
      const phase = view.phaseOf(accounts[0]!.requestId);
      view.count(phase, 'doubledAccounts', accounts.length - 1);
      const ids = accounts.map(({ _id }) => _id).join(', ');
      view.about(phase, ids)('doubled_account', `the same ${key} ${value}`);
    }
  }
  for (const { _id: id, requestId } of view.accounts) {
    if (!view.byId.has(requestId))
      view.about(view.phaseOf(requestId), id)('wrong_account', `${requestId} has no record`);
  }
  const known = (key: keyof Account): Set<unknown> =>
    new Set(view.accounts.map((account) => account[key]));
  const [emails, eins] = [known('emailNormalized'), known('ein')];
  for (const { applicant, answer, phase } of view.ledger) {
    if (applicant === undefined || answer?.status !== 202) continue;
    // Both values belong to others, so either reason is right.
    if (emails.has(applicant.email) || eins.has(applicant.ein)) continue;
    const words = `no account has ${applicant.email} or ${applicant.ein}`;
    view.about(phase, answer.requestId ?? '')('missing_account', words);
  }
}
