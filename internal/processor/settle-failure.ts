/** Carries out the verdict on a failed attempt: one update of the record, then a hint for when it is due. */
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { traceFields } from '../platform/tracing.ts';
import type { Position, WorkerMoves } from '../submission/worker-moves.ts';
import { hintFor, type Hint, type QueueName } from '../queue/job.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { countOutcome, type OutcomeTools } from './count-outcome.ts';
import type { OutageGate } from './outage.ts';
import { verdict, type FailureClass } from './failures.ts';

export interface FailedAttempt {
  /** As claimed: its counts are those before this attempt. */
  readonly record: SubmissionRecord;
  readonly position: Position;
  readonly queue: QueueName;
  readonly failure: FailureClass;
  /** In plain words, without personal data: support reads it. */
  readonly lastError: string;
  /** Mails that may be out, this attempt's included; undefined: as the record says. */
  readonly possibleMails: number | undefined;
}

export interface FailureTools extends OutcomeTools, Pick<ProcessorMetrics, 'failures'> {
  readonly clock: Clock;
  readonly store: WorkerMoves;
  readonly gates: Readonly<Record<QueueName, Pick<OutageGate, 'wait'>>>;
  readonly log: Logger;
  /** Wakes the workers of `queue` after `delayMs`; may reject. */
  hintLater(queue: QueueName, hint: Hint, delayMs: number): Promise<void>;
}

/** Never rejects: where even this update fails, the claim runs out and reconcile takes over. */
export async function settleFailure(failed: FailedAttempt, tools: FailureTools): Promise<void> {
  const { record, position, queue, failure, lastError } = failed;
  const counted = {
    attempts: record.attempts + (failure === 'transient' ? 1 : 0),
    ambiguous: failed.possibleMails ?? record.ambiguous ?? 0,
  };
  const waitedMs = tools.clock.now().getTime() - record.stateAt.getTime();
  const what = verdict(failure, { ...counted, waitedMs });
  tools.failures.inc({ queue, class: failure });
  // An address that does not exist is the end of an application like another; a dead letter waits for a person.
  const level =
    failure === 'permanent' || (failure === 'busy' && what.do === 'park')
      ? 'info'
      : failure === 'ours' || what.do === 'finish'
        ? 'error'
        : 'warn';
  const fields = { request_id: position.requestId, ...traceFields(record.traceparent) };
  tools.log[level]({ ...fields, queue, failure, verdict: what, last_error: lastError }, 'attempt failed');
  if (what.do === 'park' && what.pauseWorker) tools.gates[queue].wait();
  try {
    if (what.do === 'finish') {
      const state = await tools.store.move(position, what.event, attemptOf(record), {
        ...counted,
        lastError,
        reason: lastError,
      });
      if (state !== undefined) countOutcome(record, { state, reason: failure }, tools);
      return;
    }
    const postponed = await tools.store.postpone(position, { delayMs: what.delayMs, ...counted, lastError });
    if (!postponed) return;
    await tools.hintLater(queue, hintFor(record), what.delayMs);
  } catch (error) {
    tools.log.debug({ ...fields, err: error }, 'left to reconcile');
  }
}
