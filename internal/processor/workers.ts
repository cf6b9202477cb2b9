/** The workers of this process, one for each queue: what they do with a hint, and when they pause. */
import { traceFields } from '../platform/tracing.ts';
import { HintsInHand } from '../queue/hints-in-hand.ts';
import type { Hint, QueueName } from '../queue/job.ts';
import { MAIL_SLOT_WAIT_MS, MAIL_SLOT_WAITS_AGAIN_MS } from './limits.ts';
import { notifyApplicant, type NotifyTools } from './notify-applicant.ts';
import { OutageGate } from './outage.ts';
import { processSubmission, type ProcessTools } from './process-submission.ts';

export type Workers = Readonly<Record<QueueName, HintsInHand>>;

const steps = { applications: processSubmission, notifications: notifyApplicant } as const;

/** Makes the workers; they take hints at once. As many hints of a queue as it has `slots` are worked on at the same time. */
export function createWorkers(options: {
  readonly slots: Readonly<Record<QueueName, number>>;
  readonly tools: Omit<ProcessTools & NotifyTools, 'gates' | 'reserveMailSlot'>;
  /** Whether a write becomes durable; what a set without a majority answers to a read says nothing of it. */
  databaseTakesWrites(): Promise<boolean>;
  /** Why this process's clock is too far off to work by; empty when it is not. */
  readonly clockFaults: () => readonly string[];
  readonly paused: { set(labels: { queue: QueueName }, value: number): void };
}): { readonly workers: Workers; readonly waitForClock: () => void; readonly close: () => void } {
  const { slots, tools, clockFaults, paused } = options;
  const { log, mailer } = tools;
  const workerOf = (queue: QueueName): HintsInHand => {
    const handle = async (hint: Hint): Promise<void> => {
      // The hint is lost; the record is not, and another processor's reconcile finds it.
      if (clockFaults().length > 0) return gates[queue].wait();
      try {
        await steps[queue](hint, { ...tools, gates, reserveMailSlot });
      } catch (error) {
        // The claim request failed: the record is as it was, and due again soon.
        log.warn(
          { request_id: hint.requestId, ...traceFields(hint.traceparent), err: error, queue },
          'job could not start',
        );
        gates[queue].wait();
      }
    };
    return new HintsInHand({ queue, slots: slots[queue], handle });
  };
  let waitsFrom = 0;
  const reserveMailSlot = async (): Promise<(() => void) | undefined> => {
    if (tools.clock.monotonicMs() < waitsFrom) return workers.notifications.tryReserve();
    const slot = await workers.notifications.reserve(MAIL_SLOT_WAIT_MS);
    if (slot === undefined) waitsFrom = tools.clock.monotonicMs() + MAIL_SLOT_WAITS_AGAIN_MS;
    return slot;
  };
  const workers: Workers = { applications: workerOf('applications'), notifications: workerOf('notifications') };
  const gateOf = (queue: QueueName, probe: () => Promise<boolean>): OutageGate => {
    paused.set({ queue }, 0);
    return new OutageGate({ worker: workers[queue], probe, log, paused });
  };
  const mayWork = async (): Promise<boolean> => clockFaults().length === 0 && (await options.databaseTakesWrites());
  const gates = {
    applications: gateOf('applications', mayWork),
    notifications: gateOf('notifications', async () => (await mayWork()) && mailer.probe()),
  };
  return {
    workers,
    waitForClock: () => {
      for (const gate of Object.values(gates)) gate.wait();
    },
    close: () => {
      for (const gate of Object.values(gates)) gate.close();
    },
  };
}
