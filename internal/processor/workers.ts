/** The workers of this process: for hints, and for the line of mails. */
import type { MailGate, MailPlace } from '../mail/mail-gate.ts';
import { traceFields } from '../platform/tracing.ts';
import { HintsInHand } from '../queue/hints-in-hand.ts';
import type { Hint } from '../queue/job.ts';
import type { MailQueue } from '../submission/mail-queue.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { MailLine } from './mail-line.ts';
import { OutageGate } from './outage.ts';
import { processSubmission, type AttemptTools } from './process-submission.ts';

export interface Workers {
  readonly applications: HintsInHand;
  readonly line: MailLine;
  readonly waitForDatabase: () => void;
  readonly close: () => void;
}

export function createWorkers(options: {
  readonly slots: number;
  readonly mailGate: MailGate;
  readonly queue: MailQueue;
  readonly tools: Omit<AttemptTools, 'line' | 'waitForDatabase' | 'closed'>;
  /** A set without a majority still answers reads. */
  databaseTakesWrites(): Promise<boolean>;
  readonly metrics: {
    readonly workerPaused: Pick<ProcessorMetrics['workerPaused'], 'set'>;
  };
}): Workers {
  const { slots, tools, metrics } = options;
  const { log, holds } = tools;

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

  const applications = new HintsInHand({ slots, handle: (hint) => work(hint) });
  metrics.workerPaused.set({ waits_for: 'database' }, 0);
  const line = new MailLine({
    gate: options.mailGate,
    log,
    holds,
    readHead: (without) => options.queue.head(without),
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
