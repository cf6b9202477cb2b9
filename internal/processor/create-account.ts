/** The first half of an attempt: rejects an application or creates its account. */
import { decideOnCreation, decideOnFields } from '../application/decide.ts';
import { normalizeEin, normalizeEmail } from '../application/identity.ts';
import { parseApplication, type Application } from '../application/parse-application.ts';
import type { Reason } from '../application/reasons.ts';
import type { AccountStore } from '../account/account-store.ts';
import type { Account } from '../account/account.ts';
import { defined } from '../platform/defined.ts';
import { traceFields } from '../platform/tracing.ts';
import { attemptOf, type Applicant, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import type { Claim } from './claim.ts';
import { countOutcome } from './count-outcome.ts';
import type { FailureTools } from './settle-failure.ts';

export interface CreateTools extends FailureTools {
  readonly accounts: AccountStore;
  readonly duplicateKeys: ProcessorMetrics['duplicateKeys'];
}

export interface Created {
  readonly applicant: Applicant;
  readonly accountId: string;
  /** Undefined if an earlier attempt created it. */
  readonly account: Account | undefined;
}

export async function createAccount(
  record: SubmissionRecord,
  claim: Claim,
  tools: CreateTools,
): Promise<Created | undefined> {
  const fields = decideOnFields(parseApplication(record.body?.buffer ?? new Uint8Array()));
  if (fields.verdict === 'reject') {
    await reject(record, claim, fields.reasons, tools, applicantOf(fields.claimed));
    return undefined;
  }
  claim.assertHeld();
  const { application } = fields;
  const owner = { requestId: record._id, partnerId: record.partnerId ?? 'unknown' };
  const creation = await tools.accounts.create(application, owner);
  if (creation.kind !== 'created') tools.duplicateKeys.inc({ found: creation.kind });

  const applicant = applicantOf(application);
  const outcome = decideOnCreation(creation);
  if (outcome.verdict === 'go_on')
    return { applicant, accountId: outcome.accountId, account: creation.account };
  await reject(record, claim, outcome.reasons, tools, applicant);
  return undefined;
}

export async function noteAccount(
  record: SubmissionRecord,
  claim: Claim,
  { applicant, accountId }: Created,
  { keepClaim }: { readonly keepClaim: boolean },
  tools: CreateTools,
): Promise<boolean> {
  const askedAtMs = tools.clock.monotonicMs();
  const state = await tools.store.move(claim.position, 'create_account', attemptOf(record), {
    applicant,
    accountId,
    ...(keepClaim ? { keepClaim } : {}),
  });
  if (state === undefined) return false;
  claim.moved('account_created', askedAtMs);
  countOutcome(record, { state: 'account_created', reason: 'none' }, tools);
  tools.log.debug(
    { request_id: record._id, ...traceFields(record.traceparent) },
    'account created',
  );
  return true;
}

async function reject(
  record: SubmissionRecord,
  claim: Claim,
  reasons: readonly Reason[],
  tools: CreateTools,
  applicant: Applicant,
): Promise<void> {
  const reason = reasons.map(({ field, code }) => `${field}: ${code}`).join(', ');
  const state = await tools.store.move(claim.position, 'reject', attemptOf(record), {
    reasons,
    reason,
    applicant,
  });
  if (state === undefined) return;
  countOutcome(record, { state: 'rejected', reason: reasons[0]?.code ?? 'none' }, tools);
  tools.log.info(
    { request_id: record._id, ...traceFields(record.traceparent), reason },
    'application rejected',
  );
}

function applicantOf({ email, ein, businessName }: Partial<Application>): Applicant {
  return {
    ...(email === undefined ? {} : { email: normalizeEmail(email) }),
    ...(ein === undefined ? {} : { ein: normalizeEin(ein) }),
    ...defined({ businessName }),
  };
}
