/** A simulated processor of the parts of cmd/processor/wire.ts. */
import { processSubmission } from '../../internal/processor/attempt.ts';
import { Holds, OutageGate } from '../../internal/processor/outage-gate.ts';
import { FINISH_WORK_MS, Line, worksOf } from '../../internal/processor/line.ts';
import { Reconcile, RECONCILE_EVERY_MS } from '../../internal/processor/reconcile.ts';
import type { AttemptTools } from '../../internal/processor/step.ts';
import type { Clock } from '../../internal/platform/process/clock.ts';
import { MailGate } from '../../internal/mail/mail-gate.ts';
import { loadTemplates } from '../../internal/mail/message.ts';
import { PartnerLabels } from '../../internal/telemetry/metrics.ts';
import type { SimProcess } from './scheduler.ts';
import { noMetric, noMetrics, silent, type World } from './world.ts';

const CONCURRENCY = 2;
const templates = await loadTemplates();

/** Starts the processor; the result ends it as SIGTERM does. */
export function startProcessor(world: World, process: SimProcess): () => void {
  const { scheduler, queue } = world;
  const connection = world.connect(process, 'processor');
  const { store, dueWork, accounts, ledger, clock, ping } = connection;
  // Read in each round, to skip days without work.
  const holds = new Holds(connection.holds, noMetric);
  const mailer = world.relay.mailer();
  const outage = new OutageGate({ takesWrites: ping, log: silent, metrics: noMetrics });
  const tools: AttemptTools = {
    metrics: noMetrics,
    partnerLabels: new PartnerLabels(),
    traffic: { ended: () => {}, mailed: () => {} },
    clock,
    store,
    accounts,
    earlier: connection.earlier(() => holds.partners()),
    hasten: (earlier) => reconcile.hasten(earlier),
    ledger,
    mailer,
    mailSettings: {
      from: 'service@partner.example',
      loginUrl: 'https://login.example/',
      linkSecret: 'a-secret-for-simulations-of-32-characters',
      templates,
    },
    holds,
    host: process.name,
    log: silent,
    outage,
    sendRetry: (retry) => void queue.send([retry]).catch(() => {}),
  };
  const line = new Line({
    slots: CONCURRENCY,
    gate: new MailGate({
      places: CONCURRENCY,
      probe: () => mailer.probe(),
      onOutage: () => {},
      clock,
      log: silent,
    }),
    holds,
    work: (...wanted) => processSubmission({ live: tools, test: tools }, ...wanted),
  });
  outage.add(line);
  const take = (...[records, step]: Parameters<Parameters<typeof queue.startWorker>[1]>): void =>
    line.put(worksOf(records, step, clock.now()));
  queue.startWorker(process, take, () => !line.paused);
  const reconcile = new Reconcile({ due: dueWork, line, store, holds, clock });
  const round = async (): Promise<void> => {
    await holds.refresh().catch(() => {});
    await reconcile.round();
  };
  scheduler.as(process, () => workWhenDue(world, process, clock, round));
  const close = async (): Promise<void> => {
    process.closing = true;
    const late = new AbortController();
    scheduler.after(FINISH_WORK_MS, () => late.abort());
    const left = await line.close(late.signal);
    await queue.send(left).catch(() => {});
    if (late.signal.aborted) world.disturb('killed', process, Infinity);
    process.alive = false;
  };
  return () => void scheduler.after(0, () => void close(), process);
}

/** Runs rounds at the service's pace, but none while nothing can be due. */
function workWhenDue(
  world: World,
  process: SimProcess,
  clock: Clock,
  round: () => Promise<void>,
): void {
  const { scheduler } = world;
  let notBefore = 0;
  let running = false;
  let planned: ReturnType<typeof scheduler.after> | undefined;
  const run = async (): Promise<void> => {
    running = true;
    await round().catch(() => {});
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
    planned = scheduler.after(
      Math.max(untilDue, notBefore - scheduler.now),
      () => void run(),
      process,
    );
  };
  world.onDue.push(consider);
  consider();
}
