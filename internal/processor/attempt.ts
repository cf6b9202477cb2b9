/**
 * What happens to an application later, from top to bottom: a worker claims the record that is due,
 * does its step, and ends the attempt by the step's verdict. The line calls `processSubmission`;
 * `step.ts` says what an attempt works with, `verdict.ts` what follows from it.
 */
import { SpanKind } from '@opentelemetry/api';
import type { StoredReason } from '../application/reasons.ts';
import type { MailPlace } from '../mail/mail-gate.ts';
import { ownerName } from '../partner/key-terms.ts';
import { later } from '../platform/process/clock.ts';
import {
  contextOf,
  failSpan,
  inSpan,
  linksTo,
  traceFields,
  type NamedSpan,
} from '../platform/process/tracing.ts';
import { hintFor, queueSpan } from '../queue/job.ts';
import type { ProcessorEvent } from '../submission/states.ts';
import { attemptOf, type OpenRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { createAccount } from './account-step.ts';
import { Claim } from './claim.ts';
import { workOf, type Work } from './line.ts';
import { moveToMail } from './first-mail.ts';
import { mailApplicant } from './mail-step.ts';
import { stepOf, writeOrRetry, type Attempt, type AttemptTools } from './step.ts';
import {
  classOfError,
  levelOf,
  LOST,
  verdictOfError,
  verdictOfFailure,
  type Done,
  type Failed,
  type Verdict,
} from './verdict.ts';

type Claimed = Pick<Attempt, 'record' | 'step' | 'startedAt' | 'traceparent' | 'logFields'>;
/** The next attempt, on a record that is claimed for it, or work for the line. */
type Next = Attempt | Work | undefined;
/** A verdict; once the step is done, the record has moved. */
type Ended = Exclude<Verdict, Done> | { readonly kind: 'moved'; readonly next: Next };

/**
 * Never rejects. Resolves with what the line has next of the record. Calls `freeSlot` when the
 * e-mail of a new account goes on in the account's place.
 */
export async function processSubmission(
  both: Readonly<Record<'live' | 'test', AttemptTools>>,
  work: Work,
  place: MailPlace | undefined,
  freeSlot: (requestId: string) => void,
): Promise<Work | undefined> {
  const askedAtMs = both.live.clock.monotonicMs();
  const claimed = await claimRecord(work, both[work.test ? 'test' : 'live']);
  if (claimed === undefined) return undefined;
  const { record } = claimed;
  // Only the record says for sure what it is.
  const tools = both[record.test ? 'test' : 'live'];
  if (work.lost === true) tools.metrics.reconcileRequeued.inc();
  if (await isStoppedByCrashes(claimed, tools)) return undefined;
  const step = stepOf[record.state];
  if (step !== work.step) {
    // A move does not raise the version, so stale work could claim the record after its step.
    await giveBack(record, tools);
    return workOf(record, step, tools.clock.now());
  }
  const claim = new Claim(record, askedAtMs, tools);
  let next = await makeAttempt({ ...claimed, claim, place }, tools);
  // At most once: no attempt follows that of an e-mail.
  while (next !== undefined && 'claim' in next) {
    freeSlot(record._id);
    next = await makeAttempt(next, tools);
  }
  return next;
}

async function claimRecord(
  { requestId, version, step, traceparent }: Work,
  { store, clock, metrics, log, outage }: AttemptTools,
): Promise<Claimed | undefined> {
  const startedAt = clock.now();
  const logFieldsOf = (parent?: string) => ({ request_id: requestId, ...traceFields(parent) });
  try {
    const record = await store.claim(requestId, version);
    if (record !== undefined)
      return { record, step, startedAt, traceparent, logFields: logFieldsOf(record.traceparent) };
    metrics.attempts.inc({ step, result: 'repeat' });
  } catch (error) {
    // The record is soon due again.
    metrics.failures.inc({ step, class: classOfError(error) });
    log.warn({ ...logFieldsOf(traceparent), err: error }, 'attempt could not start');
    outage.wait(error);
  }
  return undefined;
}

/** After this many dead workers, a record is a dead letter. */
const MAX_CRASHES = 5;
/** After this many, it is tried alone, at a random time within `CRASH_APART_MS`. */
const CRASHES_ALONE = 2;
const CRASH_APART_MS = 60_000;

/**
 * True if no attempt is made now: a record may kill its workers, so after two deaths it waits for a
 * random time, which lets it be tried alone, and after five it is given up.
 */
async function isStoppedByCrashes(claimed: Claimed, tools: AttemptTools): Promise<boolean> {
  const { record } = claimed;
  const { crashes = 0, takenOver } = record;
  if (crashes >= MAX_CRASHES) {
    const words = 'its workers ended without a word, several times';
    const fact = { code: 'workers_died', words } as const;
    await fail(verdictOfFailure(record, { failure: 'crashed', fact }), claimed, tools);
    return true;
  }
  if (takenOver !== true || crashes < CRASHES_ALONE) return false;
  const dueAt = later(tools.clock.now(), Math.random() * CRASH_APART_MS);
  await tools.store.putApart(record, dueAt).catch(() => {});
  return true;
}

/** Never rejects. */
async function makeAttempt(attempt: Attempt, tools: AttemptTools): Promise<Next> {
  const named = spanOf(attempt);
  try {
    return await inSpan(named, async (span) => {
      const verdict = await doStep(attempt, tools);
      const result = resultOf(verdict);
      tools.metrics.attempts.inc({ step: attempt.step, result });
      if (verdict.kind === 'claim_lost') failSpan(span, 'claim_lost');
      else if ('failure' in verdict) failSpan(span, verdict.failure);
      return end(verdict, attempt, tools);
    });
  } finally {
    attempt.claim.release();
  }
}

/** Does the step and, once it is done, moves the record. */
async function doStep(attempt: Attempt, tools: AttemptTools): Promise<Ended> {
  try {
    const verdict =
      attempt.step === 'account'
        ? await createAccount(attempt, tools)
        : await mailApplicant(attempt, tools);
    return verdict.kind === 'done' ? await move(verdict, attempt, tools) : verdict;
  } catch (error) {
    const verdict = verdictOfError(error, attempt);
    if (verdict.failure === 'infrastructure') tools.outage.wait(error);
    else if (verdict.failure === 'ours') tools.outage.note(error);
    return verdict;
  }
}

/** One update of the record. `LOST` if another worker has it. */
async function move(done: Done, attempt: Attempt, tools: AttemptTools): Promise<Ended> {
  const { record } = attempt;
  let next: Next;
  if (done.event === 'create_account' && done.firstMail !== undefined) {
    next = await moveToMail(done.firstMail, done.changes, attempt, tools);
    if (next === undefined) return LOST;
  } else {
    if (!(await tools.store.move(record, done.event, attemptOf(record), done.changes))) return LOST;
    if (done.event === 'create_account') next = workOf(record, 'mail', tools.clock.now());
  }
  noteMove(done, attempt, tools);
  return { kind: 'moved', next };
}

/** Unless the step is done, puts the record back or gives it up. */
async function end(verdict: Ended, attempt: Attempt, tools: AttemptTools): Promise<Next> {
  if (verdict.kind === 'moved') return verdict.next;
  // The claim may still be ours, as after a hold; if not, this changes nothing.
  if (verdict.kind === 'claim_lost') await giveBack(attempt.record, tools);
  else if (verdict.kind === 'waits') await scheduleRetry(verdict, 'waits', attempt, tools);
  else await fail(verdict, attempt, tools);
  return undefined;
}

async function fail(verdict: Failed, claimed: Claimed, tools: AttemptTools): Promise<void> {
  const { record, step, logFields } = claimed;
  const { failure, fact, changes: _changes, ...told } = verdict;
  const last_error = fact.words;
  tools.metrics.failures.inc({ step, class: failure });
  const entry = { ...logFields, step, failure, verdict: told, last_error };
  tools.log[levelOf(verdict)](entry, 'attempt failed');
  if (verdict.kind !== 'end') return scheduleRetry(verdict, failure, claimed, tools);
  const write = async (): Promise<void> => {
    const { event, changes: found } = verdict;
    const isMoved = await tools.store.move(record, event, attemptOf(record), found);
    if (isMoved) countOutcome(record, event, verdict.failure, tools, found.reasons);
  };
  await writeOrRetry(write, tools);
}

/**
 * Releases the record until it is due, when reconcile reads it. A job may bring it in time; it may
 * be lost.
 */
async function scheduleRetry(
  { delayMs, changes }: Extract<Verdict, { delayMs: number }>,
  reason: string,
  { record, step }: Claimed,
  tools: AttemptTools,
): Promise<void> {
  const write = async (): Promise<void> => {
    const dueAt = later(tools.clock.now(), delayMs);
    if (!(await tools.store.putBack(record, dueAt, changes)) || delayMs === 0) return;
    const attempt = attemptOf({ ...record, ...changes });
    tools.sendRetry({ ...hintFor(record), step, delayMs, reason, attempt });
  };
  await writeOrRetry(write, tools);
}

/** Gives up the claim; the record is due since `stateAt`, so it keeps its turn. */
async function giveBack(record: OpenRecord, tools: AttemptTools): Promise<void> {
  const write = (): Promise<boolean> => tools.store.putBack(record, record.stateAt);
  await writeOrRetry(write, tools);
}

/* What metrics, logs and traces are told. */

function resultOf(verdict: Ended) {
  if (verdict.kind === 'moved') return 'done';
  return 'failure' in verdict ? 'failed' : verdict.kind;
}

function spanOf({ record, step, startedAt, traceparent }: Attempt): NamedSpan {
  const attributes = {
    'partner_ingest.request_id': record._id,
    'partner_ingest.attempt': attemptOf(record),
  };
  const span: NamedSpan =
    step === 'account'
      ? queueSpan('process', attributes)
      : { name: 'mail applicant', kind: SpanKind.INTERNAL, attributes };
  const parent = contextOf(record.traceparent);
  return { ...span, startTime: startedAt, links: linksTo(traceparent), parent };
}

function noteMove({ event, changes }: Done, attempt: Attempt, tools: AttemptTools): void {
  const { record, logFields } = attempt;
  const { clock, log, metrics } = tools;
  const reasons = event === 'reject' ? changes.reasons : [];
  countOutcome(record, event, reasons[0]?.code ?? 'none', tools, reasons);
  if (event === 'create_account') log.debug(logFields, 'account created');
  else if (event === 'reject')
    log.info({ ...logFields, reason: changes.reason }, 'application rejected');
  else {
    const seconds = (clock.now().getTime() - record.receivedAt.getTime()) / 1_000;
    metrics.completionSeconds.observe(seconds);
    log.info({ ...logFields, seconds }, 'application completed');
  }
}

const stateAfter = {
  create_account: 'account_created',
  reject: 'rejected',
  complete: 'completed',
  bounce: 'undeliverable',
  give_up: 'dead_lettered',
} as const satisfies Record<ProcessorEvent, string>;

/** `reasons`: all of them, with their fields. */
function countOutcome(
  record: OpenRecord,
  event: ProcessorEvent,
  reason: Parameters<ProcessorMetrics['outcomes']['inc']>[0]['reason'],
  { metrics, partnerLabels, traffic }: AttemptTools,
  reasons: readonly StoredReason[] = [],
): void {
  const { partnerId } = record;
  const outcome = { state: stateAfter[event], reason };
  metrics.outcomes.inc(outcome);
  if (partnerId === undefined) return;
  metrics.partnerOutcomes.inc({ partner: partnerLabels.of(partnerId), ...outcome });
  if (event === 'create_account') return;
  const known = reason === 'none' || reasons.length > 0 ? reasons : [{ code: reason }];
  traffic.ended(ownerName(partnerId, record), record, outcome.state, known);
}
