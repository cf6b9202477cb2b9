/** The step of the account: rejects an application or creates its account. */
import { normalizedApplicant, type Applicant } from '../application/fields.ts';
import { parseApplication } from '../application/parse-application.ts';
import { decideOnCreation, type CreationFact, type Reason } from '../application/reasons.ts';
import { endingOf, MAIL_PROBES } from '../application/sandbox-endings.ts';
import type { Account } from '../account/account.ts';
import { jittered } from '../platform/process/deadline.ts';
import { traceFields } from '../platform/process/tracing.ts';
import { beginFirstMail, noteUnsent } from './mail-step.ts';
import type { OpenRecord } from '../submission/submission.ts';
import type { Changes } from '../submission/worker-moves.ts';
import {
  LOST,
  verdictOfError,
  type Attempt,
  type AttemptTools,
  type StepEnd,
  type Verdict,
} from './step.ts';

/** An earlier request that is not decided by then has lost its place. */
const WAITS_AT_MOST_MS = 3_600_000;
/** The next look comes after this share of the time it has waited. */
const LOOK_AGAIN = { share: 0.25, firstMs: 500, capMs: 60_000 } as const;

export async function createAccount(attempt: Attempt, tools: AttemptTools): Promise<StepEnd> {
  const { record, claim, place } = attempt;
  const rejected = (reasons: readonly Reason[], of: Applicant): StepEnd =>
    reject(reasons, unlessStored(of, record));
  const parsed = parseApplication(record.body?.buffer ?? new Uint8Array());
  if (!parsed.valid) return rejected(parsed.reasons, normalizedApplicant(parsed.claimed));
  if (!claim.mayGoOn) return { verdict: LOST };
  const { application } = parsed;
  const applicant = normalizedApplicant(application);
  const ending = record.test ? endingOf(application.ein) : undefined;
  if (ending?.reason !== undefined) return rejected([ending.reason], applicant);
  const partnerId = record.probe === 'mail' ? MAIL_PROBES : (record.partnerId ?? 'unknown');
  const owner = { requestId: record._id, partnerId };
  const judged = record.test && ending === undefined ? { judged: true as const } : {};
  const drafted = { ...tools.accounts.draft(application, owner), ...judged };
  const known =
    ending === undefined ? await waitForEarlier(drafted, applicant, attempt, tools) : undefined;
  if (known?.kind === 'waits') return { verdict: known };
  if (!claim.mayGoOn) return { verdict: LOST };
  const hasMail = place !== undefined && known === undefined;
  const first = hasMail ? beginFirstMail(drafted, attempt, tools) : undefined;
  const account = first?.account ?? drafted;
  const creation =
    known ??
    (await tools.accounts
      .create(account)
      .catch((error: unknown) => verdictOfError(error, attempt)));
  if ('failure' in creation) return { verdict: creation, firstMail: first };

  const { kind } = creation;
  if (kind !== 'created') tools.metrics.duplicateKeys.inc({ found: kind });
  const stands = kind !== 'taken' && creation.accountId === account._id;
  if (kind === 'own' && !stands) await noteUnsent(creation.accountId, attempt, tools);
  const outcome = decideOnCreation(creation);
  if (outcome.verdict !== 'go_on') return rejected(outcome.reasons, applicant);
  const { accountId } = outcome;
  const verdict = {
    kind: 'done',
    event: 'create_account',
    changes: { accountId, ...unlessStored(applicant, record) },
  } as const;
  return { verdict, firstMail: stands ? first : undefined };
}

/**
 * Of two requests of one applicant, the one received first is decided first. Undefined if none
 * comes before this one; the account that decides already, if there is one.
 */
async function waitForEarlier(
  account: Account,
  applicant: Applicant,
  { record }: Attempt,
  tools: AttemptTools,
): Promise<Extract<Verdict, { kind: 'waits' }> | CreationFact | undefined> {
  const earlier = await tools.earlier.of({ ...record, applicant });
  if (earlier === undefined) return undefined;
  // Many requests of one applicant would otherwise wait for each other.
  const holder = await tools.accounts.whoHolds(account);
  if (holder !== undefined) return holder;
  const now = tools.clock.now();
  const { waitsSince: since = now } = record;
  const waitedMs = now.getTime() - since.getTime();
  if (waitedMs >= WAITS_AT_MOST_MS) {
    const fields = { request_id: record._id, ...traceFields(record.traceparent) };
    tools.log.warn(
      fields,
      'an earlier request of the applicant is not decided: this one goes first',
    );
    return undefined;
  }
  if (earlier !== 'unknown') await tools.hasten(earlier);
  const { share, firstMs, capMs } = LOOK_AGAIN;
  const delayMs = jittered(Math.min(capMs, Math.max(firstMs, waitedMs * share)));
  return { kind: 'waits', since, delayMs };
}

/** Ingest stores it; a version of the service that did not may have. */
function unlessStored(applicant: Applicant, { applicant: stored }: OpenRecord): Changes {
  return stored === undefined ? { applicant } : {};
}

function reject(reasons: readonly Reason[], changes: Changes): StepEnd {
  const reason = reasons.map(({ field, code }) => `${field}: ${code}`).join(', ');
  return { verdict: { kind: 'done', event: 'reject', changes: { ...changes, reasons, reason } } };
}
