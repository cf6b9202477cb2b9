/** One attempt at a record's next step: claim it, work, settle what went wrong. The same for every queue. */
import type { Clock } from '../platform/clock.ts';
import { inSpan, type Span } from '../platform/tracing.ts';
import { queueSpan, type Hint, type QueueName } from '../queue/job.ts';
import type { OpenState } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { Claim, ClaimLostError } from './claim.ts';
import { classOfError, type FailureClass } from './failures.ts';
import { settleFailure, type FailureTools } from './settle-failure.ts';

export interface AttemptTools extends FailureTools {
  readonly clock: Clock;
  readonly attempts: { inc(labels: { queue: string; result: string }): void };
}

/** What a queue does with a record in its state. */
export interface Step {
  readonly queue: QueueName;
  readonly state: OpenState;
  /** In plain words, for `lastError`: "creating the account". */
  readonly goal: string;
  /** Throws `AttemptFailure`, `ClaimLostError`, or whatever went wrong. */
  work(record: SubmissionRecord, claim: Claim): Promise<void>;
}

/** A failure whose class is known where it is thrown; its words are for support and hold nothing personal. */
export class AttemptFailure extends Error {
  override readonly name = 'AttemptFailure';
  readonly failure: FailureClass;
  constructor(failure: FailureClass, words: string) {
    super(words);
    this.failure = failure;
  }
}

/** Works on the hinted record unless someone else does or did. The promise fails only when not even the claim could be asked for. */
export async function attempt(hint: Hint, step: Step, tools: AttemptTools): Promise<void> {
  const { queue, state } = step;
  const [confirmedAt, startedAt] = [tools.clock.monotonicMs(), tools.clock.now()];
  const record = await tools.store.claim(hint.requestId, hint.version);
  if (record?.state !== state) {
    tools.attempts.inc({ queue, result: 'repeat' });
    return;
  }
  const position = { requestId: record._id, state, version: record.version };
  const claim = new Claim({ position, store: tools.store, clock: tools.clock, confirmedAt });
  const span = queueSpan('process', queue, {
    'partner_ingest.request_id': record._id,
    'partner_ingest.attempt': record.attempts + (record.ambiguous ?? 0) + 1,
  });
  try {
    // The record says whose trace this is, because a job may be lost and made again by reconcile.
    await inSpan({ ...span, parent: record.traceparent, links: [hint.traceparent], startedAt }, (opened) =>
      workAndSettle(record, claim, step, tools, opened),
    );
  } finally {
    claim.release();
  }
}

async function workAndSettle(
  record: SubmissionRecord,
  claim: Claim,
  step: Step,
  tools: AttemptTools,
  span: Span | undefined,
): Promise<void> {
  const { queue } = step;
  try {
    await step.work(record, claim);
    tools.attempts.inc({ queue, result: 'done' });
  } catch (error) {
    if (error instanceof ClaimLostError) {
      tools.attempts.inc({ queue, result: 'claim_lost' });
      span?.fail('claim_lost');
      return;
    }
    tools.attempts.inc({ queue, result: 'failed' });
    const known = error instanceof AttemptFailure;
    const failure = known ? error.failure : classOfError(error);
    span?.fail(failure);
    const unknownWords = `${step.goal} failed: ${error instanceof Error ? error.name : 'unknown error'}`;
    await settleFailure(
      { record, position: claim.position, queue, failure, lastError: known ? error.message : unknownWords },
      tools,
    );
  }
}
