/** One attempt at a record's next step: claim it, work, settle a failure. The same for every queue. */
import { inSpan, type Span, type SpanOptions } from '../platform/tracing.ts';
import { queueSpan, type Hint, type QueueName } from '../queue/job.ts';
import type { OpenState } from '../submission/states.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { discardedReason } from '../application/reasons.ts';
import { Claim, ClaimLostError } from './claim.ts';
import { countOutcome } from './count-outcome.ts';
import { classOfError, type FailureClass } from './failures.ts';
import type { Holds } from './follow-holds.ts';
import { settleFailure, type FailureTools } from './settle-failure.ts';

export interface AttemptTools extends FailureTools {
  readonly attempts: ProcessorMetrics['attempts'];
  readonly holds: Holds;
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
  /** Mails that may be out, where the account's ledger was counted. */
  readonly possibleMails: number | undefined;
  constructor(failure: FailureClass, words: string, possibleMails?: number) {
    super(words);
    this.failure = failure;
    this.possibleMails = possibleMails;
  }
}

/** Works on the hinted record unless someone else does or did. Rejects only if the claim request fails. */
export async function runAttempt(hint: Hint, step: Step, tools: AttemptTools): Promise<void> {
  const { queue, state } = step;
  const [confirmedAt, startedAt] = [tools.clock.monotonicMs(), tools.clock.now()];
  const record = await tools.store.claim(hint.requestId, hint.version).catch((error: unknown) => {
    tools.failures.inc({ queue, class: classOfError(error) });
    throw error;
  });
  if (record?.state !== state) {
    tools.attempts.inc({ queue, result: 'repeat' });
    return;
  }
  await workOnClaimed(record, step, tools, { confirmedAt, links: [hint.traceparent], startedAt });
}

/** Works on a record that this process has claimed, as it was when the claim was confirmed. Never rejects. */
export async function workOnClaimed(
  record: SubmissionRecord,
  step: Step,
  tools: AttemptTools,
  options: {
    /** Monotonic time just before the claim was asked for or confirmed. */
    readonly confirmedAt: number;
    readonly startedAt: Date;
    readonly links: NonNullable<SpanOptions['links']>;
  },
): Promise<void> {
  const { queue, state } = step;
  const { confirmedAt, ...opening } = options;
  const position = { requestId: record._id, state, version: record.version };
  const stopped = (): boolean => tools.holds.over(record) !== undefined;
  const claim = new Claim({ position, store: tools.store, clock: tools.clock, confirmedAt, stopped });
  const span = queueSpan('process', queue, {
    'partner_ingest.request_id': record._id,
    'partner_ingest.attempt': attemptOf(record),
  });
  try {
    // The record says whose trace this is, because a job may be lost and made again by reconcile.
    await inSpan({ ...span, ...opening, parent: record.traceparent }, (opened) =>
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
    if (await obeyHold(record, claim, queue, tools)) return;
    await step.work(record, claim);
    tools.attempts.inc({ queue, result: 'done' });
  } catch (error) {
    if (error instanceof ClaimLostError) {
      tools.attempts.inc({ queue, result: 'claim_lost' });
      span?.fail('claim_lost');
      // Where this fails, the claim runs out, and the next one finds the hold.
      await obeyHold(record, claim, queue, tools).catch(() => {});
      return;
    }
    tools.attempts.inc({ queue, result: 'failed' });
    const known = error instanceof AttemptFailure;
    const failure = known ? error.failure : classOfError(error);
    span?.fail(failure);
    const unknownWords = `${step.goal} failed: ${error instanceof Error ? error.name : 'unknown error'}`;
    await settleFailure(
      {
        record,
        position: claim.position,
        queue,
        failure,
        lastError: known ? error.message : unknownWords,
        possibleMails: known ? error.possibleMails : undefined,
      },
      tools,
    );
  }
}

/** Does what an operator's hold says instead of the work: sets the record aside, or ends it. False without a hold. */
async function obeyHold(
  record: SubmissionRecord,
  { position }: Claim,
  queue: QueueName,
  tools: AttemptTools,
): Promise<boolean> {
  const hold = tools.holds.over(record);
  if (hold === undefined) return false;
  if (hold.state === 'held') {
    await tools.store.setAside(position, hold._id);
    tools.attempts.inc({ queue, result: 'held' });
    return true;
  }
  const state = await tools.store.move(position, 'discard', attemptOf(record), {
    reasons: [discardedReason],
    reason: `discarded by ${hold.endedBy ?? 'an operator'}`,
  });
  tools.attempts.inc({ queue, result: 'discarded' });
  if (state !== undefined) countOutcome(record, { state, reason: discardedReason.code }, tools);
  return true;
}
