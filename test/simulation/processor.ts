/** A simulated processor: the parts that cmd/processor/wire.ts puts together, on the models of this world. */
import { notifyApplicant } from '../../internal/processor/notify-applicant.ts';
import { RECONCILE_EVERY_MS } from '../../internal/processor/limits.ts';
import { loadTemplates } from '../../internal/mail/templates.ts';
import type { Clock } from '../../internal/platform/clock.ts';
import { OutageGate } from '../../internal/processor/outage.ts';
import { processSubmission } from '../../internal/processor/process-submission.ts';
import { reconcileOnce } from '../../internal/processor/reconcile.ts';
import { queueNames, type Hint, type QueueName } from '../../internal/queue/job.ts';
import type { SubmissionStore } from '../../internal/submission/submission-store.ts';
import type { SimWorker } from './queue.ts';
import type { SimProcess } from './scheduler.ts';
import { noMetric, silent, type World } from './world.ts';

const CONCURRENCY = 2;
const templates = await loadTemplates();

export function startProcessor(world: World, process: SimProcess): void {
  const { scheduler, queue } = world;
  const { store, accounts, clock, ping } = world.connect(process, 'processor');
  const mailer = world.relay.mailer();
  const workers = new Map<QueueName, SimWorker>();
  const gate = (name: QueueName, probe: () => Promise<boolean>): OutageGate =>
    new OutageGate({ worker: () => workers.get(name)!, probe, log: silent, paused: { set: () => {} } });
  const gates = {
    applications: gate('applications', ping),
    notifications: gate('notifications', async () => (await ping()) && mailer.probe()),
  };
  const tools = {
    outcomes: noMetric,
    attempts: noMetric,
    failures: noMetric,
    mails: noMetric,
    duplicateKeys: noMetric,
    completionSeconds: noMetric,
    possibleSecondMails: noMetric,
    store,
    accounts,
    clock,
    log: silent,
    gates,
    mailer,
    host: process.name,
    mailSettings: {
      from: 'service@partner.example',
      loginUrl: 'https://login.example/',
      linkSecret: 'a-secret-for-simulations-of-32-characters',
      templates,
    },
    hint: (name: QueueName, hint: Hint) => void queue.send(name, [hint]).catch(() => {}),
    hintLater: (name: QueueName, hint: Hint, delayMs: number) => queue.send(name, [hint], delayMs),
  };
  const handlers = { applications: processSubmission, notifications: notifyApplicant };
  for (const name of queueNames) {
    const handle = (hint: Hint): Promise<void> => handlers[name](hint, tools).catch(() => gates[name].wait());
    workers.set(name, queue.startWorker(name, { process, concurrency: CONCURRENCY, handle }));
  }
  if (world.parts.reconciles) scheduler.as(process, () => reconcileWhenDue(world, process, { store, clock, workers }));
}

/**
 * Rounds of reconcile at the service's pace, but none while nothing can be due: days of back-off would otherwise be made
 * of rounds that find nothing.
 */
function reconcileWhenDue(
  world: World,
  process: SimProcess,
  parts: {
    readonly store: SubmissionStore;
    readonly clock: Clock;
    readonly workers: ReadonlyMap<QueueName, SimWorker>;
  },
): void {
  const { scheduler, queue } = world;
  const { store, clock, workers } = parts;
  const tools = {
    requeued: noMetric,
    unknown: noMetric,
    oldestDueSeconds: noMetric,
    store,
    clock,
    log: silent,
    waiting: (name: QueueName) => queue.waiting(name),
    paused: (name: QueueName) => workers.get(name)!.paused,
    sendHints: (name: QueueName, hints: readonly Hint[]) => queue.send(name, hints),
  };
  let notBefore = 0;
  let running = false;
  let planned: ReturnType<typeof scheduler.after> | undefined;
  const round = async (): Promise<void> => {
    running = true;
    await reconcileOnce(tools).catch(() => {});
    running = false;
    notBefore = scheduler.now + RECONCILE_EVERY_MS * world.random.between(0.8, 1.2);
    consider();
  };
  const consider = (): void => {
    if (running || !process.alive) return;
    const dueAt = world.earliestDueAt();
    if (planned !== undefined) planned.run = undefined;
    if (dueAt === undefined) return;
    const untilDue = dueAt - clock.now().getTime();
    planned = scheduler.after(Math.max(untilDue, notBefore - scheduler.now), () => void round(), process);
  };
  world.onDue.push(consider);
  consider();
}
