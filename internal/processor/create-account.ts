/** The step of the account: rejects an application or creates its account. */
import { decideOnCreation } from '../application/decide.ts';
import { normalizedApplicant, type Applicant } from '../application/fields.ts';
import { parseApplication } from '../application/parse-application.ts';
import type { Reason } from '../application/reasons.ts';
import { endingOf } from '../application/test-endings.ts';
import type { Attempt, AttemptTools } from './apply-verdict.ts';
import type { Verdict } from './failures.ts';
import { beginFirstMail, noteUnsent } from './mail-applicant.ts';

export async function createAccount(attempt: Attempt, tools: AttemptTools): Promise<Verdict> {
  const { record, claim, place } = attempt;
  const parsed = parseApplication(record.body?.buffer ?? new Uint8Array());
  if (!parsed.valid) return reject(parsed.reasons, normalizedApplicant(parsed.claimed));
  if (!claim.held) return { kind: 'lost' };
  const { application } = parsed;
  const ending = record.test ? endingOf(application.ein) : undefined;
  if (ending?.reason !== undefined)
    return reject([ending.reason], normalizedApplicant(application));
  const owner = { requestId: record._id, partnerId: record.partnerId ?? 'unknown' };
  const judged = record.test && ending === undefined ? { judged: true as const } : {};
  const creation = await tools.accounts.create(application, owner, (account) =>
    place === undefined
      ? { ...account, ...judged }
      : beginFirstMail({ ...account, ...judged }, attempt, tools),
  );
  const standing = 'accountId' in creation ? creation.accountId : undefined;
  // The account that stands is another one, or none.
  if (attempt.begun?.account._id !== standing) attempt.begun = undefined;
  if (creation.kind !== 'created') tools.metrics.duplicateKeys.inc({ found: creation.kind });

  const applicant = normalizedApplicant(application);
  if (creation.kind === 'own') await noteUnsent(creation.accountId, attempt, tools);
  const outcome = decideOnCreation(creation);
  if (outcome.verdict !== 'go_on') return reject(outcome.reasons, applicant);
  const { accountId } = outcome;
  return { kind: 'done', event: 'create_account', changes: { applicant, accountId } };
}

function reject(reasons: readonly Reason[], applicant: Applicant): Verdict {
  const reason = reasons.map(({ field, code }) => `${field}: ${code}`).join(', ');
  return { kind: 'done', event: 'reject', changes: { reasons, reason, applicant } };
}
