/** Applies the verdict on a failed attempt in one update of the record. */
import type { Clock } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { traceFields } from '../platform/tracing.ts';
import type { Position, WorkerMoves } from '../submission/worker-moves.ts';
import { attemptOf, type SubmissionRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { countOutcome, type OutcomeTools } from './count-outcome.ts';
import { verdict, type FailureClass } from './failures.ts';
import { SETTLE_RETRY, SETTLE_TRIES } from './limits.ts';

export type Step = 'account' | 'mail';

export interface FailedAttempt {
  /** Its counts exclude this attempt. */
  readonly record: SubmissionRecord;
  readonly position: Position;
  readonly step: Step;
  readonly failure: FailureClass;
  /** Support reads it, so it holds no personal data. */
  readonly lastError: string;
  readonly possibleMails: number | undefined;
}

export interface FailureTools extends OutcomeTools, Pick<ProcessorMetrics, 'failures'> {
  readonly clock: Clock;
  readonly store: WorkerMoves;
  readonly log: Logger;
  waitForDatabase(): void;
  /** Ends what is still retried when the processor closes. */
  readonly closed: AbortSignal;
}

/**
 * Never rejects. A failed update is retried, or the record would count as one that killed its
 * worker.
 */
export async function settleFailure(failed: FailedAttempt, tools: FailureTools): Promise<void> {
  const { record, position, step, failure, lastError } = failed;
  const soFar = {
    ambiguous: failed.possibleMails ?? record.ambiguous ?? 0,
    backedOffMs: record.backedOffMs ?? 0,
  };
  const what = verdict(failure, soFar);
  tools.failures.inc({ step, class: failure });
  const fields = { request_id: position.requestId, ...traceFields(record.traceparent) };
  tools.log[levelOf(failure, what.kind)](
    { ...fields, step, failure, verdict: what, last_error: lastError },
    'attempt failed',
  );
  if (failure === 'infrastructure') tools.waitForDatabase();
  await sayLater(carryOut, tools.closed, (error) =>
    tools.log.debug({ ...fields, err: error }, 'not settled yet'),
  );

  async function carryOut(): Promise<void> {
    switch (what.kind) {
      case 'put_back':
        // Behind all that are due, so that a mail which is the cause does not stop them.
        await tools.store.putBack(position, tools.clock.now(), lastError);
        return;
      case 'retry': {
        const backedOffMs = soFar.backedOffMs + what.delayMs;
        const attempts = record.attempts + (failure === 'transient' ? 1 : 0);
        const counts = { attempts, ambiguous: soFar.ambiguous, backedOffMs };
        await tools.store.postpone(position, { delayMs: what.delayMs, ...counts, lastError });
        return;
      }
      case 'finish': {
        const counts = { attempts: record.attempts, ambiguous: soFar.ambiguous };
        const state = await tools.store.move(position, what.event, attemptOf(record), {
          ...counts,
          lastError,
          reason: lastError,
        });
        if (state === undefined) return;
        const to = what.event === 'bounce' ? 'undeliverable' : 'dead_lettered';
        countOutcome(record, { state: to, reason: what.reason }, tools);
      }
    }
  }
}

export async function sayLater(
  say: () => Promise<void>,
  closed: AbortSignal,
  onFailure: (error: unknown) => void,
): Promise<void> {
  const enough = new AbortController();
  const giveUp = (_error: unknown, failures: number): void => {
    if (failures >= SETTLE_TRIES) enough.abort();
  };
  await say().catch((error: unknown) => {
    onFailure(error);
    const signal = AbortSignal.any([enough.signal, closed]);
    void retryUntilDone(say, { ...SETTLE_RETRY, signal, onFailure: giveUp });
  });
}

/** An unknown address is an ordinary end. */
function levelOf(
  failure: FailureClass,
  kind: 'put_back' | 'retry' | 'finish',
): 'info' | 'warn' | 'error' {
  if (failure === 'permanent') return 'info';
  if (failure === 'ours' || kind === 'finish') return 'error';
  const isOrdinary = ['busy', 'throttled', 'relay'].includes(failure);
  return isOrdinary ? 'info' : 'warn';
}
