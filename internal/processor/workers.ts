/** The workers of this process: the line, what brings work to it, and what stops it. */
import type { MailPlace } from '../mail/mail-gate.ts';
import { traceFields } from '../platform/tracing.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { Line, type LineOptions, type Work } from './line.ts';
import { OutageGate } from './outage.ts';
import { processSubmission, type AttemptTools, type BothTools } from './process-submission.ts';

export interface Workers {
  readonly line: Line;
  readonly outage: OutageGate;
  readonly close: () => void;
}

type OfProcess = Omit<AttemptTools, 'waitForDatabase' | 'closed'>;

export function createWorkers(options: {
  readonly slots: number;
  readonly gate: LineOptions['gate'];
  readonly tools: OfProcess;
  readonly testTools: OfProcess;
  /** A set without a majority still answers reads. */
  databaseTakesWrites(): Promise<boolean>;
  readonly workerPaused: Pick<ProcessorMetrics['workerPaused'], 'set'>;
}): Workers {
  const { slots, gate, tools, testTools, workerPaused } = options;
  const { log, holds } = tools;
  const closing = new AbortController();
  const ofWorkers = { waitForDatabase: () => outage.wait(), closed: closing.signal };
  const both: BothTools = {
    live: { ...tools, ...ofWorkers },
    test: { ...testTools, ...ofWorkers },
  };
  const work = async (wanted: Work, place?: MailPlace): Promise<Work | undefined> => {
    try {
      return await processSubmission(wanted, both, place);
    } catch (error) {
      // The record is soon due again.
      const fields = { request_id: wanted.requestId, ...traceFields(wanted.traceparent) };
      log.warn({ ...fields, err: error }, 'attempt could not start');
      outage.wait();
      return undefined;
    }
  };
  const line = new Line({ slots, gate, holds, work });
  const outage = new OutageGate({
    workers: [line],
    probe: () => options.databaseTakesWrites(),
    log,
    paused: { set: (value) => workerPaused.set({ waits_for: 'database' }, value) },
  });
  workerPaused.set({ waits_for: 'database' }, 0);
  return {
    line,
    outage,
    close: () => {
      closing.abort();
      outage.close();
    },
  };
}
