/** What happens to a recorded application: claim, read, create the account or reject, then queue the e-mail. */
import { decideOnCreation, decideOnFields } from '../application/decide.ts';
import { normalizeEmail } from '../application/identity.ts';
import { parseApplication } from '../application/parse-application.ts';
import type { Reason } from '../application/reasons.ts';
import type { AccountStore } from '../account/account-store.ts';
import type { Clock } from '../platform/clock.ts';
import { hintFor, type Hint } from '../queue/job.ts';
import type { SubmissionStore } from '../submission/submission-store.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { Claim, ClaimLostError } from './claim.ts';
import { classOfError } from './failures.ts';
import { settleFailure, type FailureTools } from './settle-failure.ts';

export interface ProcessTools extends FailureTools {
  readonly store: SubmissionStore;
  readonly accounts: AccountStore;
  readonly clock: Clock;
  readonly duplicateKeys: { inc(labels: { found: string }): void };
  readonly attempts: { inc(labels: { queue: string; result: string }): void };
}

/** Works on the hinted record unless someone else does or did. Rejects only when not even the claim could be asked for. */
export async function processSubmission(hint: Hint, tools: ProcessTools): Promise<void> {
  const { store, clock } = tools;
  const confirmedAt = clock.monotonicMs();
  const record = await store.claim(hint.requestId, hint.version);
  if (record?.state !== 'recorded') {
    tools.attempts.inc({ queue: 'applications', result: 'repeat' });
    return;
  }
  const position = { requestId: record._id, state: record.state, version: record.version } as const;
  const claim = new Claim({ position, store, clock, confirmedAt });
  try {
    await createAccountOrReject(record, claim, tools);
    tools.attempts.inc({ queue: 'applications', result: 'done' });
  } catch (error) {
    if (error instanceof ClaimLostError) {
      tools.attempts.inc({ queue: 'applications', result: 'claim_lost' });
      return;
    }
    tools.attempts.inc({ queue: 'applications', result: 'failed' });
    await settleFailure(
      {
        record,
        position,
        queue: 'applications',
        failure: classOfError(error),
        lastError: `creating the account failed: ${error instanceof Error ? error.name : 'unknown error'}`,
      },
      tools,
    );
  } finally {
    claim.release();
  }
}

async function createAccountOrReject(record: SubmissionRecord, claim: Claim, tools: ProcessTools): Promise<void> {
  const fields = decideOnFields(parseApplication(record.body?.buffer ?? new Uint8Array()));
  if (fields.verdict === 'reject') return reject(record, claim, fields.reasons, tools);
  const { application } = fields;
  const applicant = {
    email: normalizeEmail(application.email),
    ein: application.ein,
    businessName: application.businessName,
  };

  claim.assertHeld();
  const creation = await tools.accounts.create(application, {
    requestId: record._id,
    partnerId: record.partnerId ?? 'unknown',
  });
  if (creation.kind !== 'created') tools.duplicateKeys.inc({ found: creation.kind });

  const outcome = decideOnCreation(creation);
  if (outcome.verdict === 'reject') return reject(record, claim, outcome.reasons, tools, applicant);
  const { accountId } = outcome;
  const moved = await tools.store.move(claim.position, 'account_created', record.attempts + 1, {
    applicant,
    accountId,
  });
  if (!moved) return;
  tools.outcomes.inc({ state: 'account_created', reason: 'none' });
  // A hint that cannot be sent is no fault: the record is due, and reconcile finds it.
  await tools.sendHint('notifications', hintFor(record), 0).catch(() => {});
}

async function reject(
  record: SubmissionRecord,
  claim: Claim,
  reasons: readonly Reason[],
  tools: ProcessTools,
  applicant?: { readonly email: string; readonly ein: string; readonly businessName: string },
): Promise<void> {
  const moved = await tools.store.move(claim.position, 'rejected', record.attempts + 1, {
    reasons,
    reason: reasons.map((reason) => `${reason.field}: ${reason.code}`).join(', '),
    ...(applicant === undefined ? {} : { applicant }),
  });
  if (moved) tools.outcomes.inc({ state: 'rejected', reason: reasons[0]?.code ?? 'none' });
}
