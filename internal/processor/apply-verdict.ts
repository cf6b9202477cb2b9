/** Applies the verdict on an attempt in one update of the record. */
import type { Clock } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { traceFields } from '../platform/tracing.ts';
import type { Retry, Step } from '../queue/job.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import type { PartnerLabels } from '../telemetry/partner-labels.ts';
import type { Claim } from './claim.ts';
import type { Failed, FailureClass, Verdict } from './failures.ts';
import { SETTLE_RETRY, SETTLE_TRIES } from './limits.ts';

export interface Attempt {
  /** Its counts exclude this attempt. */
  readonly record: SubmissionRecord;
  readonly claim: Claim;
  readonly step: Step;
}

export interface VerdictTools extends Pick<
  ProcessorMetrics,
  'outcomes' | 'partnerOutcomes' | 'failures' | 'completionSeconds'
> {
  readonly partnerLabels: PartnerLabels;
  readonly clock: Clock;
  readonly store: WorkerMoves;
  readonly log: Logger;
  waitForDatabase(): void;
  /** May lose the job. */
  sendRetry(retry: Retry): void;
  /** Ends what is still retried when the processor closes. */
  readonly closed: AbortSignal;
}

/** False if another worker has the record. */
export async function finish(
  verdict: Verdict & { readonly kind: 'done' },
  { record, claim }: Attempt,
  tools: VerdictTools,
  moves: Pick<WorkerMoves, 'move'>,
): Promise<boolean> {
  const { log } = tools;
  const { event, changes } = verdict;
  const fields = { request_id: record._id, ...traceFields(record.traceparent) };
  const state = await moves.move(claim.position, event, attemptOf(record), changes);
  if (state === undefined) return false;
  switch (event) {
    case 'create_account':
      countOutcome(record, { state: 'account_created', reason: 'none' }, tools);
      log.debug(fields, 'account created');
      break;
    case 'reject': {
      const { reason, reasons } = verdict.changes;
      countOutcome(record, { state: 'rejected', reason: reasons[0]?.code ?? 'none' }, tools);
      log.info({ ...fields, reason }, 'application rejected');
      break;
    }
    case 'complete': {
      countOutcome(record, { state: 'completed', reason: 'none' }, tools);
      const seconds = (tools.clock.now().getTime() - record.receivedAt.getTime()) / 1_000;
      tools.completionSeconds.observe(seconds);
      log.info({ ...fields, seconds }, 'application completed');
    }
  }
  return true;
}

/**
 * Never rejects. A failed update is retried, or the record would count as one that killed its
 * worker.
 */
export async function settle(failed: Failed, attempt: Attempt, tools: VerdictTools): Promise<void> {
  const { record, claim, step } = attempt;
  const { failure, words, ...verdict } = failed;
  tools.failures.inc({ step, class: failure });
  tools.log[levelOf(failure, verdict.kind)](
    {
      request_id: record._id,
      ...traceFields(record.traceparent),
      step,
      failure,
      verdict,
      last_error: words,
    },
    'attempt failed',
  );
  if (failure === 'infrastructure') tools.waitForDatabase();
  await untilSaid(() => say(failed), attempt, tools);

  async function say(what: Failed): Promise<void> {
    const { position } = claim;
    switch (what.kind) {
      case 'later':
        // Behind all that are due, so that a mail which is the cause does not stop them.
        await tools.store.putBack(position, tools.clock.now(), words);
        return;
      case 'again': {
        const { delayMs, counts } = what;
        if (await tools.store.postpone(position, { delayMs, ...counts, lastError: words }))
          tools.sendRetry({
            requestId: record._id,
            version: position.version,
            partnerId: record.partnerId,
            traceparent: record.traceparent,
            step,
            delayMs,
            reason: failure,
            attempt: attemptOf(counts),
          });
        return;
      }
      case 'end': {
        const { event, ambiguous } = what;
        const changes = { attempts: record.attempts, ambiguous, lastError: words, reason: words };
        const state = await tools.store.move(position, event, attemptOf(record), changes);
        if (state === undefined) return;
        const to = event === 'bounce' ? 'undeliverable' : 'dead_lettered';
        countOutcome(record, { state: to, reason: what.failure }, tools);
      }
    }
  }
}

/** The record keeps its place. */
export async function giveBack(attempt: Attempt, tools: VerdictTools): Promise<void> {
  const { record, claim } = attempt;
  await untilSaid(() => tools.store.putBack(claim.position, record.stateAt), attempt, tools);
}

/** Never rejects; a failed write is retried in the background, within bounds. */
export async function untilSaid(
  say: () => Promise<unknown>,
  { record }: Pick<Attempt, 'record'>,
  { closed, log }: Pick<VerdictTools, 'closed' | 'log'>,
): Promise<void> {
  const enough = new AbortController();
  const onFailure = (_error: unknown, failures: number): void => {
    if (failures >= SETTLE_TRIES) enough.abort();
  };
  await say().catch((error: unknown) => {
    log.debug({ request_id: record._id, err: error }, 'not settled yet');
    const signal = AbortSignal.any([enough.signal, closed]);
    void retryUntilDone(say, { ...SETTLE_RETRY, signal, onFailure });
  });
}

function countOutcome(
  { partnerId }: SubmissionRecord,
  outcome: Parameters<ProcessorMetrics['outcomes']['inc']>[0],
  tools: VerdictTools,
): void {
  tools.outcomes.inc(outcome);
  if (partnerId !== undefined)
    tools.partnerOutcomes.inc({ partner: tools.partnerLabels.of(partnerId), ...outcome });
}

/** An unknown address is an ordinary end. */
function levelOf(failure: FailureClass, kind: Failed['kind']): 'info' | 'warn' | 'error' {
  if (failure === 'permanent') return 'info';
  if (failure === 'ours' || kind === 'end') return 'error';
  const isOrdinary = ['busy', 'throttled', 'relay'].includes(failure);
  return isOrdinary ? 'info' : 'warn';
}
