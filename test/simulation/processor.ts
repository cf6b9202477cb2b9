/** A simulated processor: the parts that cmd/processor/wire.ts puts together, on the models of this world. */
import { clockFaults } from '../../internal/processor/clock-guard.ts';
import { FINISH_WORK_MS, RECONCILE_EVERY_MS } from '../../internal/processor/limits.ts';
import { loadTemplates } from '../../internal/mail/templates.ts';
import type { Clock } from '../../internal/platform/clock.ts';
import { Sending } from '../../internal/processor/sending.ts';
import { DurableSince } from '../../internal/processor/durable-since.ts';
import { reconcileOnce } from '../../internal/processor/reconcile.ts';
import { createWorkers, type Workers } from '../../internal/processor/workers.ts';
import { queueNames, type Hint, type QueueName } from '../../internal/queue/job.ts';
import type { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';
import type { SimProcess } from './scheduler.ts';
import { noMetric, silent, type World } from './world.ts';

const CONCURRENCY = 2;
const slots = { applications: CONCURRENCY, notifications: CONCURRENCY } as const;
const templates = await loadTemplates();

/** Starts the processor; the result ends it as a signal does: what it has in hand is finished. */
export function startProcessor(world: World, process: SimProcess): () => void {
  const { scheduler, queue } = world;
  const { store, accounts, ledger, clock, ping } = world.connect(process, 'processor');
  const mailer = world.relay.mailer();
  const tools = {
    outcomes: noMetric,
    partnerOutcomes: noMetric,
    partnerLabels: new PartnerLabels(),
    attempts: noMetric,
    failures: noMetric,
    mails: noMetric,
    handOverSeconds: noMetric,
    duplicateKeys: noMetric,
    completionSeconds: noMetric,
    possibleSecondMails: noMetric,
    store,
    holds: { over: () => undefined },
    accounts,
    ledger,
    clock,
    log: silent,
    mailer,
    sending: new Sending({ slots: CONCURRENCY, perSecond: 0, clock, refused: noMetric }),
    host: process.name,
    mailSettings: {
      from: 'service@partner.example',
      loginUrl: 'https://login.example/',
      linkSecret: 'a-secret-for-simulations-of-32-characters',
      templates,
    },
    hint: (name: QueueName, hint: Hint) =>
      void queue.send(name, [hint]).catch(() => workers[name].room > 0 && workers[name].take([hint])),
    hintLater: (name: QueueName, hint: Hint, delayMs: number) => queue.send(name, [hint], delayMs),
  };
  const { workers } = createWorkers({
    slots,
    tools,
    databaseTakesWrites: ping,
    clockFaults: () => [],
    paused: noMetric,
  });
  // The service's gates would look again and again: a simulated clock stays as it is.
  if (clockFaults(process.skewMs).length > 0) for (const name of queueNames) workers[name].pause();
  for (const name of queueNames) queue.startWorker(process, workers[name]);
  if (world.parts.reconciles) scheduler.as(process, () => reconcileWhenDue(world, process, { store, clock, workers }));
  const close = async (): Promise<void> => {
    process.closing = true;
    const late = new AbortController();
    scheduler.after(FINISH_WORK_MS, () => late.abort());
    await Promise.all(
      queueNames.map(async (name) => {
        const left = await workers[name].close(late.signal);
        await queue.send(name, left).catch(() => {});
      }),
    );
    if (late.signal.aborted) world.disturb('killed', process, Infinity);
    process.alive = false;
  };
  return () => void scheduler.after(0, () => void close(), process);
}

/**
 * Rounds of reconcile at the service's pace, but none while nothing can be due: days of back-off would otherwise be made
 * of rounds that find nothing.
 */
function reconcileWhenDue(
  world: World,
  process: SimProcess,
  parts: {
    readonly store: WorkerMoves;
    readonly clock: Clock;
    readonly workers: Workers;
  },
): void {
  const { scheduler, queue } = world;
  const { store, clock, workers } = parts;
  const tools = {
    requeued: noMetric,
    unknown: noMetric,
    store,
    durable: new DurableSince(clock, () => store.takesWrites()),
    clock,
    log: silent,
    waiting: (name: QueueName) => queue.waiting(name),
    clockFaults: () => clockFaults(process.skewMs),
    workers,
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
    if (running || !process.alive || process.closing) return;
    const dueAt = world.earliestDueAt();
    if (planned !== undefined) planned.run = undefined;
    if (dueAt === undefined) return;
    const untilDue = dueAt - clock.now().getTime();
    planned = scheduler.after(Math.max(untilDue, notBefore - scheduler.now), () => void round(), process);
  };
  world.onDue.push(consider);
  consider();
}
