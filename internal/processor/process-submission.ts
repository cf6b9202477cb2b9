/** What happens to a recorded application: claim, read, create the account or reject, then queue the e-mail. */
import { decideOnCreation, decideOnFields } from '../application/decide.ts';
import { normalizeEin, normalizeEmail } from '../application/identity.ts';
import { legible } from '../application/legible.ts';
import { claimedIn, parseApplication, type Application } from '../application/parse-application.ts';
import type { Reason } from '../application/reasons.ts';
import type { AccountStore } from '../account/account-store.ts';
import { later } from '../platform/clock.ts';
import { traceFields } from '../platform/tracing.ts';
import { hintFor, type Hint, type QueueName } from '../queue/job.ts';
import { UNSEARCHABLE_BODY_MS } from '../submission/limits.ts';
import { attemptOf, type Applicant, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { runAttempt, type AttemptTools } from './attempt.ts';
import type { Claim } from './claim.ts';
import { countOutcome } from './count-outcome.ts';
import { FirstMail, type FirstMailTools } from './first-mail.ts';

export interface ProcessTools extends AttemptTools, FirstMailTools {
  readonly accounts: AccountStore;
  readonly duplicateKeys: ProcessorMetrics['duplicateKeys'];
  /** Wakes the next queue's workers. A hint that gets lost is no fault: the record is due, and reconcile finds it. */
  hint(queue: QueueName, hint: Hint): void;
}

/** Creates the account of the hinted record, or rejects it. Rejects only if the claim request fails. */
export function processSubmission(hint: Hint, tools: ProcessTools): Promise<void> {
  return runAttempt(
    hint,
    {
      queue: 'applications',
      state: 'recorded',
      goal: 'creating the account',
      work: (record, claim) => createAccountOrReject(record, claim, tools),
    },
    tools,
  );
}

async function createAccountOrReject(record: SubmissionRecord, claim: Claim, tools: ProcessTools): Promise<void> {
  const body = record.body?.buffer ?? new Uint8Array();
  const fields = decideOnFields(parseApplication(body));
  if (fields.verdict === 'reject') return reject(record, claim, fields.reasons, tools, applicantOf(claimedIn(body)));
  const { application } = fields;

  let mail = await FirstMail.reserve(application.email, tools);
  try {
    claim.assertHeld();
    if (await createOrReject(application, mail, record, claim, tools)) mail = undefined;
  } finally {
    await mail?.giveUp();
  }
}

/** True when `mail` goes on by itself. */
async function createOrReject(
  application: Application,
  mail: FirstMail | undefined,
  record: SubmissionRecord,
  claim: Claim,
  tools: ProcessTools,
): Promise<boolean> {
  const applicant = applicantOf(application);
  const owner = { requestId: record._id, partnerId: record.partnerId ?? 'unknown' };
  const creation = await tools.accounts.create(application, owner, (account) =>
    mail === undefined ? account : mail.announce(account, record),
  );
  if (creation.kind !== 'created') {
    tools.duplicateKeys.inc({ found: creation.kind });
    mail?.retract();
  }

  const outcome = decideOnCreation(creation);
  if (outcome.verdict === 'reject') {
    await reject(record, claim, outcome.reasons, tools, applicant);
    return false;
  }
  const { accountId } = outcome;
  // An account that was there before may have been mailed: its ledger is read under the next claim.
  const goesOn = mail !== undefined && creation.kind === 'created' && claim.held;
  const confirmedAt = tools.clock.monotonicMs();
  const state = await tools.store.move(claim.position, 'create_account', attemptOf(record), {
    applicant,
    accountId,
    ...bodyUntil(record, tools),
    ...(goesOn ? { keepClaim: true } : {}),
  });
  if (state === undefined) return false;
  countOutcome(record, { state, reason: 'none' }, tools);
  tools.log.debug({ request_id: record._id, ...traceFields(record.traceparent) }, 'account created');
  if (goesOn) {
    const now = tools.clock.now();
    mail.goOn({ ...record, state: 'account_created', stateAt: now, attempts: 0, ambiguous: 0, accountId }, confirmedAt);
  } else tools.hint('notifications', hintFor(record));
  return goesOn;
}

async function reject(
  record: SubmissionRecord,
  claim: Claim,
  reasons: readonly Reason[],
  tools: ProcessTools,
  applicant: Applicant,
): Promise<void> {
  const reason = reasons.map(({ field, code }) => `${field}: ${code}`).join(', ');
  const state = await tools.store.move(claim.position, 'reject', attemptOf(record), {
    reasons,
    reason,
    applicant,
    ...bodyUntil(record, tools),
  });
  if (state === undefined) return;
  countOutcome(record, { state, reason: reasons[0]?.code ?? 'none' }, tools);
  tools.log.info({ request_id: record._id, ...traceFields(record.traceparent), reason }, 'application rejected');
}

/** Nobody can find a person in a body that cannot be searched, so it does not stay. */
function bodyUntil({ body }: SubmissionRecord, { clock }: ProcessTools): { readonly bodyUntil?: Date } {
  const searchable = body === undefined || legible(body.buffer).unreadable === undefined;
  return searchable ? {} : { bodyUntil: later(clock.now(), UNSEARCHABLE_BODY_MS) };
}

/** Who the record is about, as it is looked for. */
function applicantOf({ email, ein, businessName }: Partial<Application>): Applicant {
  return {
    ...(email === undefined ? {} : { email: normalizeEmail(email) }),
    ...(ein === undefined ? {} : { ein: normalizeEin(ein) }),
    ...(businessName === undefined ? {} : { businessName }),
  };
}
