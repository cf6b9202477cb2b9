/**
 * One attempt: claims a record and does what is left of account, e-mail and end.
 *
 * The e-mail of a new account follows under the same claim if a place in the line is free.
 */
import { later } from '../platform/clock.ts';
import type { MailPlace } from '../mail/mail-gate.ts';
import { inSpan, type Span, type SpanOptions } from '../platform/tracing.ts';
import { queueSpan, type Hint } from '../queue/job.ts';
import { isOpen } from '../submission/states.ts';
import { waitingMail } from '../submission/mail-queue.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { AttemptFailure } from './attempt-failure.ts';
import { Claim, ClaimLostError } from './claim.ts';
import { createAccount, noteAccount, type CreateTools, type Created } from './create-account.ts';
import { classOfError } from './failures.ts';
import type { Holds } from './follow-holds.ts';
import { CRASHES_ALONE, CRASH_APART_MS, MAX_CRASHES } from './limits.ts';
import { mailApplicant, type MailTools } from './mail-applicant.ts';
import type { MailLine } from './mail-line.ts';
import { sayLater, settleFailure, type Step } from './settle-failure.ts';

export interface AttemptTools extends CreateTools, MailTools {
  readonly attempts: ProcessorMetrics['attempts'];
  readonly holds: Holds;
  readonly line: Pick<MailLine, 'tryNow' | 'add'>;
}

interface Attempt {
  readonly record: SubmissionRecord;
  readonly claim: Claim;
  readonly startedAt: Date;
  readonly links: NonNullable<SpanOptions['links']>;
}

/** Rejects only if the claim request fails. */
export async function processSubmission(
  hint: Hint,
  tools: AttemptTools,
  place?: MailPlace,
): Promise<void> {
  if (tools.holds.has(hint.partnerId)) return;
  const step: Step = place === undefined ? 'account' : 'mail';
  const askedAtMs = tools.clock.monotonicMs();
  const startedAt = tools.clock.now();
  const record = await tools.store.claim(hint.requestId, hint.version).catch((error: unknown) => {
    tools.failures.inc({ step, class: classOfError(error) });
    throw error;
  });
  if (record === undefined || !isOpen(record.state)) {
    tools.attempts.inc({ step, result: 'repeat' });
    return;
  }
  const claim = new Claim({
    position: { requestId: record._id, state: record.state, version: record.version },
    store: tools.store,
    clock: tools.clock,
    confirmedAt: askedAtMs,
    stopped: () => tools.holds.has(record.partnerId),
  });
  const attempt = { record, claim, startedAt, links: [hint.traceparent] };
  if (await endsByCrashes(attempt, step, tools)) return claim.release();
  if (record.state === 'recorded') return doAccount(attempt, tools);
  if (place !== undefined) return doMail({ ...attempt, place }, undefined, tools);
  // The hint is stale: the record is in the line.
  await giveBack(attempt, tools);
  claim.release();
}

async function doAccount(attempt: Attempt, tools: AttemptTools): Promise<void> {
  const { record, claim } = attempt;
  let mailed = false;
  await inStep('account', attempt, tools, async () => {
    const created = await createAccount(record, claim, tools);
    if (created === undefined) return;
    const next = afterAccount(record, created, tools);
    const waiting = waitingMail(next);
    mailed = tools.line.tryNow(waiting, async (place) => {
      await doMail({ ...attempt, record: next, place, links: [] }, created, tools);
    });
    if (mailed) return;
    if (await noteAccount(record, claim, created, { keepClaim: false }, tools))
      tools.line.add(waiting);
  });
  if (!mailed) claim.release();
}

function afterAccount(
  record: SubmissionRecord,
  created: Created,
  { clock }: AttemptTools,
): SubmissionRecord {
  const { backedOffMs: _backedOff, crashes: _crashes, ...kept } = record;
  const { applicant, accountId } = created;
  const now = clock.now();
  const moved = {
    state: 'account_created',
    stateAt: now,
    dueAt: now,
    attempts: 0,
    ambiguous: 0,
  } as const;
  return { ...kept, ...moved, applicant, accountId };
}

async function doMail(
  attempt: Attempt & { readonly place: MailPlace },
  created: Created | undefined,
  tools: AttemptTools,
): Promise<void> {
  const { claim } = attempt;
  try {
    await inStep('mail', attempt, tools, async () => {
      const keepClaim = { keepClaim: true };
      if (
        created !== undefined &&
        !(await noteAccount(attempt.record, claim, created, keepClaim, tools))
      )
        return;
      await mailApplicant(attempt, created?.account, tools);
    });
  } finally {
    claim.release();
  }
}

async function inStep(
  step: Step,
  attempt: Attempt,
  tools: AttemptTools,
  work: () => Promise<void>,
): Promise<void> {
  const { record, startedAt, links } = attempt;
  const attributes = {
    'partner_ingest.request_id': record._id,
    'partner_ingest.attempt': attemptOf(record),
  };
  const span: SpanOptions =
    step === 'account'
      ? queueSpan('process', attributes)
      : { name: 'mail applicant', kind: 'INTERNAL', attributes };
  // Reconcile may have replaced the job, so the record holds the trace.
  await inSpan({ ...span, startedAt, links, parent: record.traceparent }, async (opened) => {
    try {
      await work();
      tools.attempts.inc({ step, result: 'done' });
    } catch (error) {
      await settle(error, step, attempt, tools, opened);
    }
  });
}

async function settle(
  error: unknown,
  step: Step,
  attempt: Attempt,
  tools: AttemptTools,
  span: Span | undefined,
): Promise<void> {
  const { record, claim } = attempt;
  if (error instanceof ClaimLostError) {
    tools.attempts.inc({ step, result: 'claim_lost' });
    span?.fail('claim_lost');
    // The partner was put on hold, so the claim is still ours.
    if (tools.holds.has(record.partnerId)) await giveBack(attempt, tools);
    return;
  }
  tools.attempts.inc({ step, result: 'failed' });
  const known = error instanceof AttemptFailure;
  const failure = known ? error.failure : classOfError(error);
  span?.fail(failure);
  const goal = step === 'account' ? 'creating the account' : 'mailing the applicant';
  const unknownWords = `${goal} failed: ${error instanceof Error ? error.name : 'unknown error'}`;
  await settleFailure(
    {
      record,
      position: claim.position,
      step,
      failure,
      lastError: known ? error.message : unknownWords,
      possibleMails: known ? error.possibleMails : undefined,
    },
    tools,
  );
}

async function giveBack({ record, claim }: Attempt, tools: AttemptTools): Promise<void> {
  const { position } = claim;
  const say = async (): Promise<void> => void (await tools.store.putBack(position, record.stateAt));
  await sayLater(say, tools.closed, (error) =>
    tools.log.debug({ request_id: record._id, err: error }, 'not given back yet'),
  );
}

/** A record may kill its workers, so it is tried alone after two deaths and given up after five. */
async function endsByCrashes(
  { record, claim }: Attempt,
  step: Step,
  tools: AttemptTools,
): Promise<boolean> {
  const { crashes = 0, takenOver } = record;
  if (crashes >= MAX_CRASHES) {
    const lastError = 'its workers ended without a word, several times';
    const failed = {
      record,
      position: claim.position,
      step,
      failure: 'crashed',
      lastError,
    } as const;
    await settleFailure({ ...failed, possibleMails: undefined }, tools);
    return true;
  }
  if (takenOver !== true || crashes < CRASHES_ALONE) return false;
  const dueAt = later(tools.clock.now(), Math.random() * CRASH_APART_MS);
  await tools.store.putApart(claim.position, dueAt).catch(() => {});
  return true;
}
