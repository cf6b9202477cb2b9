/** The step of the account: rejects an application or creates its account. */
import { normalizedApplicant, type Applicant, type Application } from '../application/fields.ts';
import { parseApplication } from '../application/parse-application.ts';
import { decideOnCreation, type CreationFact, type Reason } from '../application/reasons.ts';
import { endingOf, MAIL_PROBES } from '../application/sandbox-endings.ts';
import type { Account } from '../account/account.ts';
import { jittered } from '../platform/process/deadline.ts';
import type { OpenRecord } from '../submission/submission.ts';
import type { Changes } from '../submission/worker-moves.ts';
import { beginFirstMail, noteUnsent } from './first-mail.ts';
import { noteAborted } from './mail-step.ts';
import type { Attempt, AttemptTools, PreparedMail } from './step.ts';
import { LOST, type Verdict } from './verdict.ts';

/** An earlier request that is not decided by then has lost its place. */
const WAITS_AT_MOST_MS = 3_600_000;
/** The next look comes after this share of the time it has waited. */
const LOOK_AGAIN = { share: 0.25, firstMs: 500, capMs: 60_000 } as const;

export async function createAccount(attempt: Attempt, tools: AttemptTools): Promise<Verdict> {
  const { record, claim, place } = attempt;
  const parsed = parseApplication(record.body?.buffer ?? new Uint8Array());
  if (!parsed.valid) return reject(parsed.reasons, normalizedApplicant(parsed.claimed), record);
  if (!claim.mayGoOn) return LOST;
  const { application } = parsed;
  const applicant = normalizedApplicant(application);
  const ending = record.test ? endingOf(application.ein) : undefined;
  if (ending?.reason !== undefined) return reject([ending.reason], applicant, record);

  const account = draftOf(application, record, tools, ending === undefined);
  // A test that asks for its ending waits for none.
  const known =
    ending === undefined ? await waitForEarlier(account, applicant, attempt, tools) : undefined;
  if (known?.kind === 'waits') return known;
  if (!claim.mayGoOn) return LOST;
  const firstMail =
    place !== undefined && known === undefined
      ? beginFirstMail(account, attempt, tools)
      : undefined;
  const creation = known ?? (await create(firstMail?.account ?? account, firstMail, tools));

  const { kind } = creation;
  if (kind !== 'created') tools.metrics.duplicateKeys.inc({ found: kind });
  const isOfThisAttempt = kind !== 'taken' && creation.accountId === account._id;
  if (kind === 'own' && !isOfThisAttempt) await noteUnsent(creation.accountId, attempt, tools);
  const outcome = decideOnCreation(creation);
  if (outcome.verdict !== 'go_on') return reject(outcome.reasons, applicant, record);
  const { accountId } = outcome;
  return {
    kind: 'done',
    event: 'create_account',
    changes: { accountId, ...unlessStored(applicant, record) },
    firstMail: isOfThisAttempt ? firstMail : undefined,
  };
}

/** `isJudged`: a test is compared with the others that are. */
function draftOf(
  application: Application,
  { _id: requestId, partnerId = 'unknown', test, probe }: OpenRecord,
  { accounts }: AttemptTools,
  isJudged: boolean,
): Account {
  const owner = { requestId, partnerId: probe === 'mail' ? MAIL_PROBES : partnerId };
  const draft = accounts.draft(application, owner);
  return test && isJudged ? { ...draft, judged: true } : draft;
}

/** If it fails, the account may stand all the same, and its first e-mail does not go out. */
async function create(
  account: Account,
  firstMail: PreparedMail | undefined,
  tools: AttemptTools,
): Promise<CreationFact> {
  try {
    return await tools.accounts.create(account);
  } catch (error) {
    if (firstMail !== undefined) await noteAborted(firstMail, tools);
    throw error;
  }
}

/**
 * Of two requests of one applicant, the one received first is decided first. Undefined if none
 * comes before this one; the account that decides already, if there is one.
 */
async function waitForEarlier(
  account: Account,
  applicant: Applicant,
  { record, logFields }: Attempt,
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
    tools.log.warn(
      logFields,
      'an earlier request of the applicant is not decided: this one goes first',
    );
    return undefined;
  }
  if (earlier !== 'unknown') await tools.hasten(earlier);
  const { share, firstMs, capMs } = LOOK_AGAIN;
  const delayMs = jittered(Math.min(capMs, Math.max(firstMs, waitedMs * share)));
  return { kind: 'waits', delayMs, changes: { waitsSince: since } };
}

function reject(reasons: readonly Reason[], applicant: Applicant, record: OpenRecord): Verdict {
  const reason = reasons.map(({ field, code }) => `${field}: ${code}`).join(', ');
  const changes = { ...unlessStored(applicant, record), reasons, reason };
  return { kind: 'done', event: 'reject', changes };
}

/** Ingest stores `applicant`; a record of an older version may lack it, and gets it here. */
function unlessStored(applicant: Applicant, { applicant: stored }: OpenRecord): Changes {
  return stored === undefined ? { applicant } : {};
}
