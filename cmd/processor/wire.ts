/** Constructs the processor's parts. */
import { hostname } from 'node:os';
import type { Db } from 'mongodb';
import { Registry } from 'prom-client';
import { accountIndexes } from '../../internal/account/account.ts';
import { trailIndexes } from '../../internal/audit/trail.ts';
import { forgetReleased } from '../../internal/account/released-expiry.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { LedgerStore } from '../../internal/mail/ledger-store.ts';
import type { MailGate } from '../../internal/mail/mail-gate.ts';
import type { Mailer } from '../../internal/mail/mailer.ts';
import { relayOf } from '../../internal/mail/relay.ts';
import { testMailer } from '../../internal/mail/test-mailer.ts';
import { loadTemplates, type Templates } from '../../internal/mail/templates.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import type { Probe } from '../../internal/platform/admin-server.ts';
import type { Clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/settings/settings.ts';
import type { Logger } from '../../internal/platform/log.ts';
import type { Loops } from '../../internal/platform/loop.ts';
import { openProcess, type ProcessTools } from '../../internal/platform/open-process.ts';
import { redisWarnings } from '../../internal/platform/redis.ts';
import { retentionOf } from '../../internal/settings/retention.ts';
import { tracesOf } from '../../internal/settings/otel-settings.ts';
import { HoldFollower } from '../../internal/processor/follow-holds.ts';
import {
  EXPIRE_EVERY_MS,
  FINISH_WORK_MS,
  FOLLOW_HOLDS_MS,
  PROGRESS_DEADLINE_MS,
  RECONCILE_EVERY_MS,
  UNKNOWN_EVERY_MS,
  UNKNOWN_MOST,
} from '../../internal/processor/limits.ts';
import { expireOnce } from '../../internal/processor/expire.ts';
import { DurableSince } from '../../internal/processor/durable-since.ts';
import { worksOf } from '../../internal/processor/line.ts';
import { Reconcile } from '../../internal/processor/reconcile.ts';
import { createWorkers, type Workers } from '../../internal/processor/workers.ts';
import { Consumer } from '../../internal/queue/consume.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { HintOutbox } from '../../internal/queue/hint-outbox.ts';
import { hintSchema, type Retry } from '../../internal/queue/job.ts';
import { removeDueBodies } from '../../internal/submission/body-expiry.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { createProcessorMetrics, type ProcessorMetrics } from '../../internal/telemetry/metrics.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';
import { openMail } from './wire-mail.ts';

type Config = ConfigOf<'processor'>;

interface Tools {
  readonly log: Logger;
  readonly closers: Closers;
}

/** Longer than one read that ends by its time limit, and its repetition. */
const LOOP_FAILS_MS = 60_000;
/** Exceeds the workers' own deadline, so that they release their connections. */
const CLOSE_WORKERS_MS = FINISH_WORK_MS + 5_000;

export async function startProcessor(config: Config, tools: ProcessTools) {
  const { log, closers } = tools;
  // An operator's mistakes show before anything is opened.
  const relay = relayOf(config.SMTP_URL, config.SMTP_TLS);
  const templates = await loadTemplates(config.MAIL_TEMPLATES);
  const metrics = createProcessorMetrics(tools.registry);
  const { db, contact, loops, clock, clockKnown, live, warnings, adminUrl, serving } =
    await openProcess(
      config,
      {
        name: 'processor',
        metrics,
        indexes: [...submissionIndexes, ...accountIndexes, ...trailIndexes],
        traces: tracesOf(config, 'processor'),
      },
      tools,
    );

  const mail = openMail(config, relay, { ...tools, clock, metrics, warnings });
  const sender = new HintSender({ redisUrl: config.REDIS_URL, log });
  closers.add('queues', () => sender.close());
  warnings.push(() => redisWarnings(sender.redis));
  const retries = new HintOutbox({
    send: (batch) => sender.send(batch),
    otherwise: () => {},
    results: metrics.hints,
  });
  closers.add('retries', () => retries.whenEmpty());

  const work = openWork(config, {
    ...tools,
    ...mail,
    db,
    clock,
    retries,
    templates,
    metrics,
  });
  const stopping = new AbortController();
  closers.add('start of work', () => stopping.abort());
  void Promise.all([contact.whenDone, clockKnown]).then(async () => {
    const holds = loops.start({
      name: 'holds',
      needed: true,
      everyMs: FOLLOW_HOLDS_MS,
      failsAfterMs: LOOP_FAILS_MS,
      run: () => work.holds.refresh(),
    });
    // Holds must be known before work.
    await holds.succeeded;
    if (stopping.signal.aborted) return;
    startWork(config, work, { ...tools, db, clock, live, loops, sender, metrics });
    startExpiry(config, { db, clock, loops });
  });
  serving({ config: printableConfig(config) });
  return { adminUrl };
}

interface Work {
  readonly store: WorkerMoves;
  readonly workers: Workers;
  readonly holds: HoldFollower;
}

function openWork(
  config: Config,
  parts: Tools & {
    readonly db: Db;
    readonly clock: Clock;
    readonly mailer: Mailer;
    readonly mailGate: MailGate;
    readonly retries: HintOutbox;
    readonly templates: Templates;
    readonly metrics: ProcessorMetrics;
  },
): Work {
  const { db, clock, metrics, closers } = parts;
  const store = new WorkerMoves({
    db,
    retention: retentionOf(config),
    clock,
  });
  const holds = new HoldFollower({
    holds: new PartnerHolds({ db, clock }),
    onHold: metrics.partnersHeld,
  });
  const {
    LOGIN_URL: loginUrl,
    LINK_SECRET: linkSecret,
    MAIL_FROM: from,
    MAIL_SUPPORT_CONTACT: supportContact,
  } = config;
  const tools = {
    ...metrics,
    requeued: metrics.reconcileRequeued,
    partnerLabels: new PartnerLabels(),
    sendRetry: (retry: Retry) => parts.retries.add(retry),
    store,
    holds,
    accounts: new AccountStore({ db, clock }),
    ledger: new LedgerStore({ db, clock }),
    clock,
    log: parts.log,
    mailer: parts.mailer,
    host: hostname(),
    mailSettings: { from, loginUrl, linkSecret, supportContact, templates: parts.templates },
  };
  const ofTests = { db, clock, mode: { test: true } } as const;
  // Nobody reads these: a test counts in no metric of live work.
  const testMetrics = createProcessorMetrics(new Registry());
  const workers = createWorkers({
    slots: config.PROCESSOR_CONCURRENCY,
    gate: parts.mailGate,
    tools,
    testTools: {
      ...tools,
      ...testMetrics,
      requeued: testMetrics.reconcileRequeued,
      // They are found by `dueAt`, so that no test stands among the jobs that wait.
      sendRetry: () => {},
      accounts: new AccountStore(ofTests),
      ledger: new LedgerStore(ofTests),
      mailer: testMailer(parts.mailer, config.TEST_MAIL_TO),
    },
    databaseTakesWrites: () => store.takesWrites(),
    workerPaused: metrics.workerPaused,
  });
  closers.add('outage gate', workers.close);
  return { store, workers, holds };
}

function startWork(
  config: Config,
  { store, workers, holds }: Work,
  parts: Tools & {
    readonly db: Db;
    readonly clock: Clock;
    readonly live: Probe[];
    readonly loops: Loops;
    readonly sender: HintSender;
    readonly metrics: ProcessorMetrics;
  },
): void {
  const { db, clock, sender, metrics, live, loops, log, closers } = parts;
  const { line, outage } = workers;
  const consumer = new Consumer({
    redisUrl: config.REDIS_URL,
    log,
    take: (records, step) => line.put(worksOf(records, step, clock.now())),
  });
  outage.add(consumer);
  closers.add(
    'workers',
    async () => {
      await consumer.close();
      const left = await line.close(AbortSignal.timeout(FINISH_WORK_MS));
      if (left.length > 0)
        await sender.send(left.map((work) => hintSchema.parse(work))).catch(() => {});
    },
    CLOSE_WORKERS_MS,
  );
  const due = new DueWork({ db, clock });
  const reconcile = new Reconcile({
    due,
    line,
    durable: new DurableSince(clock, () => store.takesWrites()),
    holds,
    clock,
  });
  live.push(() => reconcile.faults(PROGRESS_DEADLINE_MS));
  const reading = loops.start({
    name: 'reconcile',
    needed: true,
    everyMs: RECONCILE_EVERY_MS,
    failsAfterMs: LOOP_FAILS_MS,
    run: () => reconcile.round(),
  });
  line.onServed = () => {
    if (reconcile.wanted) reading.wake();
  };
  loops.start({
    name: 'unknown_records',
    everyMs: UNKNOWN_EVERY_MS,
    failsAfterMs: 10 * UNKNOWN_EVERY_MS,
    run: async () => metrics.reconcileUnknown.set(await due.countUnknown(UNKNOWN_MOST)),
  });
}

function startExpiry(
  config: Config,
  { db, clock, loops }: { readonly db: Db; readonly clock: Clock; readonly loops: Loops },
): void {
  const tools = {
    clock,
    releasedDays: config.RETENTION_COMPLETED_DAYS,
    removeBodies: () => removeDueBodies(db, clock),
    forgetReleased: (until: Date) => forgetReleased(db, until),
  };
  loops.start({
    name: 'expiry',
    everyMs: EXPIRE_EVERY_MS,
    failsAfterMs: 10 * EXPIRE_EVERY_MS,
    run: (signal) => expireOnce(tools, signal),
  });
}
