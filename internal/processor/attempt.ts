/**
 * One attempt, from its claim to a settled verdict: claims a record, does the step that is due, and
 * moves the record on, puts it back or ends it.
 */
import { SpanKind } from '@opentelemetry/api';
import type { MailPlace } from '../mail/mail-gate.ts';
import { later } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import {
  contextOf,
  failSpan,
  inSpan,
  linksTo,
  traceFields,
  type NamedSpan,
} from '../platform/process/tracing.ts';
import { hintFor, queueSpan, type Step } from '../queue/job.ts';
import { attemptOf, type OpenRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { createAccount } from './account-step.ts';
import type { Left, Work } from './line.ts';
import { giveUpFirstMail, mailApplicant } from './mail-step.ts';
import {
  Claim,
  classOfError,
  verdictOfFailure,
  LOST,
  stepOf,
  verdictOfError,
  writeOrRetry,
  type Attempt,
  type AttemptTools,
  type PreparedMail,
  type Done,
  type Failed,
  type FailureClass,
  type StepEnd,
  type Verdict,
} from './step.ts';

/** After this many dead workers, a record is a dead letter. */
const MAX_CRASHES = 5;
/** After this many, it is tried alone, at a random time within `CRASH_APART_MS`. */
const CRASHES_ALONE = 2;
const CRASH_APART_MS = 60_000;

interface BothTools {
  readonly live: AttemptTools;
  readonly test: AttemptTools;
}

/** Never rejects. Resolves with what is left to do on the record. */
export async function processSubmission(
  both: BothTools,
  work: Work,
  place: MailPlace | undefined,
): Promise<Left | undefined> {
  const claimed = await claimRecord(work, both[work.test ? 'test' : 'live']);
  if (claimed === undefined) return undefined;
  const { record, startedAt, askedAtMs } = claimed;
  // Only the record says for sure what it is.
  const tools = both[record.test ? 'test' : 'live'];
  if (work.lost === true) tools.metrics.reconcileRequeued.inc();
  const claim = new Claim(record, askedAtMs, tools);
  const attempt = { record, claim, step: work.step, startedAt, place };
  return run(attempt, tools, work.traceparent);
}

async function claimRecord(
  { requestId, version, step, traceparent }: Work,
  { store, clock, metrics, log, outage }: AttemptTools,
) {
  const startedAt = clock.now();
  const askedAtMs = clock.monotonicMs();
  try {
    const record = await store.claim(requestId, version);
    if (record !== undefined) return { record, startedAt, askedAtMs };
    metrics.attempts.inc({ step, result: 'repeat' });
  } catch (error) {
    // The record is soon due again.
    metrics.failures.inc({ step, class: classOfError(error) });
    const fields = { request_id: requestId, ...traceFields(traceparent) };
    log.warn({ ...fields, err: error }, 'attempt could not start');
    outage.wait();
  }
  return undefined;
}

/** Never rejects. */
async function run(
  attempt: Attempt,
  tools: AttemptTools,
  traceparent?: string,
): Promise<Left | undefined> {
  const { record, claim, step } = attempt;
  try {
    if (await endsByCrashes(attempt, tools)) return undefined;
    // The work is stale: the record moved on under the version that was read.
    if (stepOf[record.state] !== step) {
      await giveBack(attempt, tools);
      const due = stepOf[record.state];
      return due && dueAtOnce(due, record, tools);
    }
    return await inSpan(spanOf(attempt, traceparent), async (span) => {
      const { verdict, left } = await judge(attempt, tools);
      const { kind } = verdict;
      tools.metrics.attempts.inc({ step, result: resultOf[kind] });
      if (kind === 'lost') {
        failSpan(span, 'claim_lost');
        // The claim may still be ours, as after a hold; if not, this changes nothing.
        await giveBack(attempt, tools);
      } else if (kind === 'waits') {
        await lookAgain(verdict, attempt, tools);
      } else if (kind !== 'done') {
        failSpan(span, verdict.failure);
        await settle(verdict, attempt, tools);
      }
      return left;
    });
  } finally {
    claim.release();
  }
}

const resultOf = {
  done: 'done',
  lost: 'claim_lost',
  waits: 'waits',
  later: 'failed',
  again: 'failed',
  end: 'failed',
} as const satisfies Record<Verdict['kind'], string>;

/** Releases the record until it may be its turn; counts no attempt. */
async function lookAgain(
  { since, delayMs }: Extract<Verdict, { kind: 'waits' }>,
  attempt: Attempt,
  tools: AttemptTools,
): Promise<void> {
  const { record, step } = attempt;
  const write = async (): Promise<void> => {
    const dueAt = later(tools.clock.now(), delayMs);
    if (!(await tools.store.putBack(record, dueAt, { waitsSince: since }))) return;
    const attempts = attemptOf(record);
    tools.sendRetry({ ...hintFor(record), step, delayMs, reason: 'waits', attempt: attempts });
  };
  await writeOrRetry(write, attempt, tools);
}

function dueAtOnce(step: Step, record: OpenRecord, { clock }: AttemptTools): Left {
  const { _id: requestId, partnerId = '', version, test, probe } = record;
  const due = { requestId, partnerId, version, step, dueAt: clock.now() };
  return { due: { ...due, ...defined({ test, probe }) } };
}

function spanOf({ record, step, startedAt }: Attempt, traceparent?: string): NamedSpan {
  const attributes = {
    'partner_ingest.request_id': record._id,
    'partner_ingest.attempt': attemptOf(record),
  };
  const span: NamedSpan =
    step === 'account'
      ? queueSpan('process', attributes)
      : { name: 'mail applicant', kind: SpanKind.INTERNAL, attributes };
  return {
    ...span,
    startTime: startedAt,
    links: linksTo(traceparent),
    parent: contextOf(record.traceparent),
  };
}

/** A record may kill its workers, so it is tried alone after two deaths and given up after five. */
async function endsByCrashes(attempt: Attempt, tools: AttemptTools): Promise<boolean> {
  const { record } = attempt;
  const { crashes = 0, takenOver } = record;
  if (crashes >= MAX_CRASHES) {
    const words = 'its workers ended without a word, several times';
    await settle(verdictOfFailure(record, { failure: 'crashed', words }), attempt, tools);
    return true;
  }
  if (takenOver !== true || crashes < CRASHES_ALONE) return false;
  const dueAt = later(tools.clock.now(), Math.random() * CRASH_APART_MS);
  await tools.store.putApart(record, dueAt).catch(() => {});
  return true;
}

interface Judged {
  readonly verdict: Verdict;
  readonly left?: Left | undefined;
}

/** Does the step; once it is done, moves the record to its next state. */
async function judge(attempt: Attempt, tools: AttemptTools): Promise<Judged> {
  const { verdict, firstMail } = await doStep(attempt, tools);
  const judged: Judged =
    verdict.kind === 'done'
      ? await finish(verdict, firstMail, attempt, tools).catch((error: unknown) => {
          return { verdict: verdictOfError(error, attempt) };
        })
      : { verdict };
  const goesOn = judged.left !== undefined && 'goOn' in judged.left;
  if (firstMail !== undefined && !goesOn) await giveUpFirstMail(attempt, firstMail, tools);
  return judged;
}

async function doStep(attempt: Attempt, tools: AttemptTools): Promise<StepEnd> {
  try {
    if (attempt.step === 'account') return await createAccount(attempt, tools);
    return { verdict: await mailApplicant(attempt, tools) };
  } catch (error) {
    return { verdict: verdictOfError(error, attempt) };
  }
}

/** One update of the record. The verdict is `lost` if another worker has it. */
async function finish(
  verdict: Done,
  firstMail: PreparedMail | undefined,
  attempt: Attempt,
  tools: AttemptTools,
): Promise<Judged> {
  const { record, place } = attempt;
  const { clock, log, metrics, store } = tools;
  const fields = { request_id: record._id, ...traceFields(record.traceparent) };
  const attempts = attemptOf(record);
  const { event, changes } = verdict;
  if (event === 'create_account') {
    const confirmedAt = clock.monotonicMs();
    // With a place, the new account holds its first hand-over already: `moveOn` claims the record for
    // it, too, which raises its version, and this attempt goes on. Else the line has the e-mail next.
    const moved =
      firstMail === undefined
        ? await store.move(record, event, attempts, changes)
        : await store.moveOn(record, attempts, changes);
    if (moved === false || moved === undefined) return { verdict: LOST };
    countOutcome(record, { state: 'account_created', reason: 'none' }, tools);
    log.debug(fields, 'account created');
    if (moved === true) return { verdict, left: dueAtOnce('mail', record, tools) };
    const claim = new Claim(moved, confirmedAt, tools);
    const startedAt = clock.now();
    const mail = { record: moved, claim, step: 'mail', startedAt, place, firstMail } as const;
    return { verdict, left: { goOn: async () => void (await run(mail, tools)) } };
  }
  if (!(await store.move(record, event, attempts, changes))) return { verdict: LOST };
  if (event === 'reject') {
    const { reason, reasons } = changes;
    countOutcome(record, { state: 'rejected', reason: reasons[0]?.code ?? 'none' }, tools);
    log.info({ ...fields, reason }, 'application rejected');
  } else {
    countOutcome(record, { state: 'completed', reason: 'none' }, tools);
    const seconds = (clock.now().getTime() - record.receivedAt.getTime()) / 1_000;
    metrics.completionSeconds.observe(seconds);
    log.info({ ...fields, seconds }, 'application completed');
  }
  return { verdict };
}

/**
 * Never rejects. A failed update is retried, or the record would count as one that killed its
 * worker.
 */
async function settle(verdict: Failed, attempt: Attempt, tools: AttemptTools): Promise<void> {
  const { record, step } = attempt;
  const { failure, words, reasons: _known, ...told } = verdict;
  const { clock, log, metrics, store } = tools;
  metrics.failures.inc({ step, class: failure });
  log[levelOf(failure, told.kind)](
    {
      request_id: record._id,
      ...traceFields(record.traceparent),
      step,
      failure,
      verdict: told,
      last_error: words,
    },
    'attempt failed',
  );
  if (failure === 'infrastructure') tools.outage.wait();
  await writeOrRetry(write, attempt, tools);

  async function write(): Promise<void> {
    switch (verdict.kind) {
      case 'later':
        // Due now, so behind all that was due before: an e-mail that causes the outage stops no other.
        await store.putBack(record, clock.now(), { lastError: words });
        return;
      case 'again': {
        const { delayMs, counts } = verdict;
        const dueAt = later(clock.now(), delayMs);
        if (!(await store.putBack(record, dueAt, { ...counts, lastError: words }))) return;
        const waits = { step, delayMs, reason: failure, attempt: attemptOf(counts) };
        tools.sendRetry({ ...hintFor(record), ...waits });
        return;
      }
      case 'end': {
        const { event, ambiguous, reasons } = verdict;
        const counts = { attempts: record.attempts, ambiguous, lastError: words };
        const changes = { ...counts, reason: words, ...defined({ reasons }) };
        if (!(await store.move(record, event, attemptOf(record), changes))) return;
        const state = event === 'bounce' ? 'undeliverable' : 'dead_lettered';
        countOutcome(record, { state, reason: verdict.failure }, tools);
      }
    }
  }
}

/** Gives up the claim; the record is due since `stateAt`, so it keeps its turn. */
async function giveBack(attempt: Attempt, tools: AttemptTools): Promise<void> {
  const { record } = attempt;
  await writeOrRetry(() => tools.store.putBack(record, record.stateAt), attempt, tools);
}

function countOutcome(
  { partnerId }: OpenRecord,
  outcome: Parameters<ProcessorMetrics['outcomes']['inc']>[0],
  { metrics, partnerLabels }: AttemptTools,
): void {
  metrics.outcomes.inc(outcome);
  if (partnerId !== undefined)
    metrics.partnerOutcomes.inc({ partner: partnerLabels.of(partnerId), ...outcome });
}

/** An unknown address is an ordinary end. */
function levelOf(failure: FailureClass, kind: Failed['kind']): 'info' | 'warn' | 'error' {
  if (failure === 'permanent') return 'info';
  if (failure === 'ours' || kind === 'end') return 'error';
  const isOrdinary = ['busy', 'throttled', 'relay'].includes(failure);
  return isOrdinary ? 'info' : 'warn';
}
