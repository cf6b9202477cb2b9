/** The workers of this process: for hints, and for the line of mails. */
import { RelayState, type PauseReason } from '../mail/relay-state.ts';
import { traceFields } from '../platform/tracing.ts';
import { HintsInHand } from '../queue/hints-in-hand.ts';
import type { Hint } from '../queue/job.ts';
import type { MailQueue } from '../submission/mail-queue.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { MailLine, type MailPlace } from './mail-line.ts';
import { OutageGate } from './outage.ts';
import { processSubmission, type AttemptTools } from './process-submission.ts';

export interface Workers {
  readonly applications: HintsInHand;
  readonly line: MailLine;
  readonly waitForDatabase: () => void;
  readonly close: () => void;
}

export function createWorkers(options: {
  readonly slots: { readonly applications: number; readonly mails: number };
  /** 0 means as many as the relay takes. */
  readonly mailsPerSecond: number;
  readonly queue: MailQueue;
  readonly tools: Omit<AttemptTools, 'line' | 'waitForDatabase' | 'closed'>;
  /** A set without a majority still answers reads. */
  databaseTakesWrites(): Promise<boolean>;
  readonly metrics: {
    readonly workerPaused: Pick<ProcessorMetrics['workerPaused'], 'set'>;
    readonly senderRefused: Pick<ProcessorMetrics['senderRefused'], 'set'>;
  };
}): Workers {
  const { slots, tools, metrics } = options;
  const { log, clock, mailer, holds } = tools;

  const work = async (hint: Hint, place?: MailPlace): Promise<void> => {
    try {
      await processSubmission(hint, { ...tools, ...ofWorkers, line }, place);
    } catch (error) {
      // The record is soon due again.
      log.warn(
        { request_id: hint.requestId, ...traceFields(hint.traceparent), err: error },
        'attempt could not start',
      );
      gate.wait();
    }
  };

  const applications = new HintsInHand({ slots: slots.applications, handle: (hint) => work(hint) });
  const onPause = (reason: PauseReason | undefined): void => {
    metrics.workerPaused.set({ waits_for: 'relay' }, reason === undefined ? 0 : 1);
    metrics.senderRefused.set(reason === 'refused' ? 1 : 0);
    if (reason === undefined) log.info('the relay takes mail again');
    else log.warn({ reason }, 'mails wait for the relay');
  };
  for (const waits_for of ['database', 'relay'] as const)
    metrics.workerPaused.set({ waits_for }, 0);
  metrics.senderRefused.set(0);
  const line = new MailLine({
    places: slots.mails,
    relay: new RelayState(options.mailsPerSecond, onPause),
    clock,
    log,
    holds,
    readHead: (without) => options.queue.head(without),
    probe: () => mailer.probe(),
    work,
  });
  const gate = new OutageGate({
    workers: [applications, line],
    probe: () => options.databaseTakesWrites(),
    log,
    paused: { set: (value) => metrics.workerPaused.set({ waits_for: 'database' }, value) },
  });
  const closing = new AbortController();
  const ofWorkers = { waitForDatabase: () => gate.wait(), closed: closing.signal };
  return {
    applications,
    line,
    waitForDatabase: ofWorkers.waitForDatabase,
    close: () => {
      closing.abort();
      gate.close();
    },
  };
}
