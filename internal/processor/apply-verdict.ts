/** What an attempt works with, and how its verdict is applied in one update of the record. */
import type { AccountStore } from '../account/account-store.ts';
import type { Account } from '../account/account.ts';
import type { Intent } from '../account/mail-ledger.ts';
import type { LedgerStore } from '../mail/ledger-store.ts';
import type { MailPlace } from '../mail/mail-gate.ts';
import type { Mailer } from '../mail/mailer.ts';
import type { MailSettings, Message } from '../mail/message.ts';
import { later, type Clock } from '../platform/clock.ts';
import { retryUntilDone } from '../platform/deadline.ts';
import { defined } from '../platform/defined.ts';
import type { Logger } from '../platform/log.ts';
import { traceFields } from '../platform/tracing.ts';
import { hintFor, type Retry, type Step } from '../queue/job.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import { attemptOf, type OpenRecord } from '../submission/submission.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import type { PartnerLabels } from '../telemetry/partner-labels.ts';
import { Claim } from './claim.ts';
import type { Done, Failed, FailureClass } from './failures.ts';
import type { Holds } from './follow-holds.ts';
import type { OutageGate } from './outage.ts';

const SETTLE_RETRY = { firstMs: 500, capMs: 5_000 } as const;
const SETTLE_TRIES = 120;

/** For live records, or for tests: these have accounts, a mailer and metrics of their own. */
export interface AttemptTools {
  readonly metrics: ProcessorMetrics;
  readonly partnerLabels: PartnerLabels;
  readonly clock: Clock;
  readonly store: WorkerMoves;
  readonly accounts: AccountStore;
  readonly ledger: LedgerStore;
  readonly mailer: Pick<Mailer, 'handOver'>;
  readonly mailSettings: MailSettings;
  readonly holds: Pick<Holds, 'has'>;
  readonly host: string;
  readonly log: Logger;
  readonly outage: OutageGate;
  /** May lose the job. */
  sendRetry(retry: Retry): void;
  /** Tells those who wait for the end of this submission; may lose it. */
  tellEnd(requestId: string): void;
}

/** An e-mail whose hand-over is in the ledger. */
export interface BegunMail {
  readonly account: Account;
  readonly intent: Intent;
  readonly message: Message;
}

export interface Attempt {
  /** Its counts exclude this attempt. */
  readonly record: OpenRecord;
  readonly claim: Claim;
  readonly step: Step;
  readonly startedAt: Date;
  /** Of an e-mail, or of an account whose e-mail may begin at once. */
  readonly place: MailPlace | undefined;
  /** The first e-mail of an account: the step of the account begins it. */
  begun?: BegunMail | undefined;
  /** The attempt at `begun`: the move that ended this one claimed the record for it. */
  next?: Attempt;
}

/** False if another worker has the record. */
export async function finish(
  { event, changes }: Done,
  attempt: Attempt,
  tools: AttemptTools,
): Promise<boolean> {
  const { record, begun } = attempt;
  const { clock, log, metrics, store } = tools;
  const attempts = attemptOf(record);
  if (event === 'create_account' && begun !== undefined) {
    const confirmedAt = clock.monotonicMs();
    const moved = await store.moveOn(record, attempts, changes);
    if (moved === undefined) return false;
    attempt.next = {
      record: moved,
      claim: new Claim(moved, confirmedAt, tools),
      step: 'mail',
      startedAt: clock.now(),
      place: attempt.place,
      begun,
    };
  } else if (!(await store.move(record, event, attempts, changes))) return false;
  if (event !== 'create_account') tools.tellEnd(record._id);
  const fields = { request_id: record._id, ...traceFields(record.traceparent) };
  switch (event) {
    case 'create_account':
      countOutcome(record, { state: 'account_created', reason: 'none' }, tools);
      log.debug(fields, 'account created');
      break;
    case 'reject': {
      const { reason, reasons } = changes;
      countOutcome(record, { state: 'rejected', reason: reasons[0]?.code ?? 'none' }, tools);
      log.info({ ...fields, reason }, 'application rejected');
      break;
    }
    case 'complete': {
      countOutcome(record, { state: 'completed', reason: 'none' }, tools);
      const seconds = (clock.now().getTime() - record.receivedAt.getTime()) / 1_000;
      metrics.completionSeconds.observe(seconds);
      log.info({ ...fields, seconds }, 'application completed');
    }
  }
  return true;
}

/**
 * Never rejects. A failed update is retried, or the record would count as one that killed its
 * worker.
 */
export async function settle(failed: Failed, attempt: Attempt, tools: AttemptTools): Promise<void> {
  const { record, step } = attempt;
  const { failure, words, reasons: _known, ...verdict } = failed;
  const { clock, log, metrics, store } = tools;
  metrics.failures.inc({ step, class: failure });
  log[levelOf(failure, verdict.kind)](
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
  if (failure === 'infrastructure') tools.outage.wait();
  await untilSaid(say, attempt, tools);

  async function say(): Promise<void> {
    switch (failed.kind) {
      case 'later':
        // Behind all that are due, so that a mail which is the cause does not stop them.
        await store.putBack(record, clock.now(), { lastError: words });
        return;
      case 'again': {
        const { delayMs, counts } = failed;
        const dueAt = later(clock.now(), delayMs);
        if (!(await store.putBack(record, dueAt, { ...counts, lastError: words }))) return;
        const waits = { step, delayMs, reason: failure, attempt: attemptOf(counts) };
        tools.sendRetry({ ...hintFor(record), ...waits });
        return;
      }
      case 'end': {
        const { event, ambiguous, reasons } = failed;
        const counts = { attempts: record.attempts, ambiguous, lastError: words };
        const changes = { ...counts, reason: words, ...defined({ reasons }) };
        if (!(await store.move(record, event, attemptOf(record), changes))) return;
        if (event === 'bounce') tools.tellEnd(record._id);
        const state = event === 'bounce' ? 'undeliverable' : 'dead_lettered';
        countOutcome(record, { state, reason: failed.failure }, tools);
      }
    }
  }
}

/** The record keeps its place. */
export async function giveBack(attempt: Attempt, tools: AttemptTools): Promise<void> {
  const { record } = attempt;
  await untilSaid(() => tools.store.putBack(record, record.stateAt), attempt, tools);
}

/** Never rejects; a failed write is retried in the background, within bounds. */
export async function untilSaid(
  say: () => Promise<unknown>,
  { record }: Attempt,
  { outage, log }: AttemptTools,
): Promise<void> {
  const enough = new AbortController();
  const onFailure = (_error: unknown, failures: number): void => {
    if (failures >= SETTLE_TRIES) enough.abort();
  };
  await say().catch((error: unknown) => {
    log.debug({ request_id: record._id, err: error }, 'not settled yet');
    const signal = AbortSignal.any([enough.signal, outage.closed]);
    void retryUntilDone(say, { ...SETTLE_RETRY, signal, onFailure });
  });
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
