/** Carries out the verdict on a failed attempt: one update of the record, then a hint for when it is due. */
import type { Logger } from '../platform/log.ts';
import { traceFields } from '../platform/tracing.ts';
import type { Position, SubmissionStore } from '../submission/submission-store.ts';
import { hintFor, type Hint, type QueueName } from '../queue/job.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
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
}

export interface FailureTools {
  readonly store: SubmissionStore;
  readonly gates: Readonly<Record<QueueName, Pick<OutageGate, 'wait'>>>;
  readonly log: Logger;
  readonly outcomes: { inc(labels: { state: string; reason: string }): void };
  readonly failures: { inc(labels: { queue: string; class: string }): void };
  /** Wakes the workers of `queue` after `delayMs`; may reject. */
  hintLater(queue: QueueName, hint: Hint, delayMs: number): Promise<void>;
}

/** Never rejects: where even this update fails, the claim runs out and reconcile takes over. */
export async function settleFailure(attempt: FailedAttempt, tools: FailureTools): Promise<void> {
  const { record, position, queue, failure, lastError } = attempt;
  const counted = {
    attempts: record.attempts + (failure === 'transient' ? 1 : 0),
    ambiguous: (record.ambiguous ?? 0) + (failure === 'ambiguous' ? 1 : 0),
  };
  const what = verdict(failure, counted);
  tools.failures.inc({ queue, class: failure });
  // An address that does not exist is the end of an application like another; a dead letter waits for a person.
  const level = failure === 'permanent' ? 'info' : failure === 'ours' || what.do === 'finish' ? 'error' : 'warn';
  const fields = { request_id: position.requestId, ...traceFields(record.traceparent) };
  tools.log[level]({ ...fields, queue, failure, verdict: what, last_error: lastError }, 'attempt failed');
  if (what.do === 'park' && what.pauseWorker) tools.gates[queue].wait();
  try {
    if (what.do === 'finish') {
      const state = await tools.store.move(position, what.event, counted.attempts + counted.ambiguous, {
        ...counted,
        lastError,
        reason: lastError,
      });
      if (state !== undefined) tools.outcomes.inc({ state, reason: failure });
      return;
    }
    const postponed = await tools.store.postpone(position, { delayMs: what.delayMs, ...counted, lastError });
    if (!postponed) return;
    await tools.hintLater(queue, hintFor(record), what.delayMs);
  } catch (error) {
    tools.log.debug({ ...fields, err: error }, 'left to reconcile');
  }
}
