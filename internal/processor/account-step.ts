/** The step of the account: rejects an application or creates its account. */
import { normalizedApplicant, type Applicant } from '../application/fields.ts';
import { parseApplication } from '../application/parse-application.ts';
import { decideOnCreation, type Reason } from '../application/reasons.ts';
import { endingOf, MAIL_PROBES } from '../application/sandbox-endings.ts';
import { beginFirstMail, noteUnsent } from './mail-step.ts';
import { LOST, verdictOfError, type Attempt, type AttemptTools, type StepEnd } from './step.ts';

export async function createAccount(attempt: Attempt, tools: AttemptTools): Promise<StepEnd> {
  const { record, claim, place } = attempt;
  const parsed = parseApplication(record.body?.buffer ?? new Uint8Array());
  if (!parsed.valid) return reject(parsed.reasons, normalizedApplicant(parsed.claimed));
  if (!claim.mayGoOn) return { verdict: LOST };
  const { application } = parsed;
  const applicant = normalizedApplicant(application);
  const ending = record.test ? endingOf(application.ein) : undefined;
  if (ending?.reason !== undefined) return reject([ending.reason], applicant);
  const partnerId = record.probe === 'mail' ? MAIL_PROBES : (record.partnerId ?? 'unknown');
  const owner = { requestId: record._id, partnerId };
  const judged = record.test && ending === undefined ? { judged: true as const } : {};
  const drafted = { ...tools.accounts.draft(application, owner), ...judged };
  const first = place === undefined ? undefined : beginFirstMail(drafted, attempt, tools);
  const account = first?.account ?? drafted;
  const creation = await tools.accounts
    .create(account)
    .catch((error: unknown) => verdictOfError(error, attempt));
  if ('failure' in creation) return { verdict: creation, firstMail: first };

  const { kind } = creation;
  if (kind !== 'created') tools.metrics.duplicateKeys.inc({ found: kind });
  const stands = kind !== 'taken' && creation.accountId === account._id;
  if (kind === 'own' && !stands) await noteUnsent(creation.accountId, attempt, tools);
  const outcome = decideOnCreation(creation);
  if (outcome.verdict !== 'go_on') return reject(outcome.reasons, applicant);
  const { accountId } = outcome;
  const verdict = {
    kind: 'done',
    event: 'create_account',
    changes: { applicant, accountId },
  } as const;
  return { verdict, firstMail: stands ? first : undefined };
}

function reject(reasons: readonly Reason[], applicant: Applicant): StepEnd {
  const reason = reasons.map(({ field, code }) => `${field}: ${code}`).join(', ');
  return { verdict: { kind: 'done', event: 'reject', changes: { reasons, reason, applicant } } };
}
