/** Constructs the processor's parts. */
import { hostname } from 'node:os';
import type { Db } from 'mongodb';
import type { Registry } from 'prom-client';
import { accountIndexes } from '../../internal/account/account.ts';
import { forgetReleased } from '../../internal/account/released-expiry.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { LedgerStore } from '../../internal/mail/ledger-store.ts';
import { PACE_TIMEOUT_MS, PROBE_BACKOFF, SLOW_AT_MOST } from '../../internal/mail/limits.ts';
import { MailGate } from '../../internal/mail/mail-gate.ts';
import { MailPace } from '../../internal/mail/mail-pace.ts';
import { createMailer, type Mailer, type Outage } from '../../internal/mail/mailer.ts';
import { relayOf, type Relay } from '../../internal/mail/relay.ts';
import { loadTemplates, type Templates } from '../../internal/mail/templates.ts';
import { traceMailer } from '../../internal/mail/trace-mailer.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import { startAdminServer, type Probe } from '../../internal/platform/admin-server.ts';
import type { Clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/settings/settings.ts';
import { watchLog, type Logger } from '../../internal/platform/log.ts';
import { Loops } from '../../internal/platform/loop.ts';
import { DatabaseClock } from '../../internal/platform/database-clock.ts';
import { Contact } from '../../internal/platform/contact-failure.ts';
import { retryUntilDone } from '../../internal/platform/deadline.ts';
import { createRedis, redisWarnings } from '../../internal/platform/redis.ts';
import { createMongo, mongoReason } from '../../internal/platform/mongo.ts';
import { ensureIndexesUntilDone } from '../../internal/platform/mongo-indexes.ts';
import { sdkVariables, wantsTraces } from '../../internal/settings/otel-settings.ts';
import { startTracing } from '../../internal/platform/tracing.ts';
import { HoldFollower } from '../../internal/processor/follow-holds.ts';
import { FINISH_WORK_MS, PROGRESS_DEADLINE_MS } from '../../internal/processor/limits.ts';
import { expireForever } from '../../internal/processor/expire.ts';
import { DurableSince } from '../../internal/processor/durable-since.ts';
import { reconcileForever } from '../../internal/processor/reconcile.ts';
import { createWorkers, type Workers } from '../../internal/processor/workers.ts';
import { Consumer } from '../../internal/queue/consume.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { removeDueBodies } from '../../internal/submission/body-expiry.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { MailQueue } from '../../internal/submission/mail-queue.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { createProcessorMetrics, type ProcessorMetrics } from '../../internal/telemetry/metrics.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';

type Config = ConfigOf<'processor'>;

interface Tools {
  readonly log: Logger;
  readonly closers: Closers;
}

/** Exceeds the workers' own deadline, so that they release their connections. */
const CLOSE_WORKERS_MS = FINISH_WORK_MS + 5_000;

export async function startProcessor(
  config: Config,
  tools: Tools & { readonly registry: Registry },
) {
  const { log, closers, registry } = tools;
  // An operator's mistakes show before anything is opened.
  const relay = relayOf(config.SMTP_URL, config.SMTP_TLS);
  const templates = await loadTemplates(config.MAIL_TEMPLATES);
  const metrics = createProcessorMetrics(registry);

  // This port closes last, so that metrics stay readable during a drain.
  const live: Probe[] = [];
  const ready: Probe[] = [];
  const warnings: Probe[] = [watchLog(metrics.logLinesDropped)];
  const admin = await startAdminServer({
    host: config.ADMIN_HOST,
    port: config.ADMIN_PORT,
    registry,
    live,
    ready,
    warnings,
  });
  closers.add('admin port', () => admin.close());
  if (wantsTraces(config)) {
    const traces = await startTracing({
      serviceName: config.OTEL_SERVICE_NAME ?? 'partner-ingest-processor',
      variables: sdkVariables(config),
      log,
    });
    warnings.push(traces.warnings);
    closers.add('traces', () => traces.close());
  }

  const mongo = createMongo(config.MONGODB_URI, 'partner-ingest processor');
  closers.add('mongodb', () => mongo.close());
  const db = mongo.db(config.MONGODB_DATABASE);
  const indexes = ensureIndexesUntilDone(db, [...submissionIndexes, ...accountIndexes], log);
  closers.add('indexes', () => indexes.stop());
  ready.push(indexes.faults);
  const loops = new Loops({
    log,
    closers,
    failing: metrics.loopFailing,
    reason: (error) => mongoReason(mongo, error),
  });
  ready.push(loops.faults);
  warnings.push(loops.warnings);
  const clock = new DatabaseClock();
  ready.push(clock.faults);
  const clockKnown = clock.follow(db, loops).succeeded;

  const mailer = traceMailer(
    createMailer({
      relay,
      clientName: config.MAIL_CLIENT_NAME,
      from: config.MAIL_FROM,
      fromName: config.MAIL_FROM_NAME,
      maxConnections: mailPlaces(config) + 2 * SLOW_AT_MOST,
    }),
    relay,
  );
  closers.add('mailer', () => mailer.close());
  const hints = new HintSender({ redisUrl: config.REDIS_URL, clock, log });
  closers.add('queues', () => hints.close());
  warnings.push(() => redisWarnings(hints.redis));

  const mailGate = openMailGate(config, { ...tools, clock, relay, mailer, metrics, warnings });
  const work = openWork(config, { ...tools, db, clock, mailer, templates, metrics, mailGate });
  const stopping = new AbortController();
  closers.add('start of work', () => stopping.abort());
  void Promise.all([indexes.whenDone, clockKnown]).then(async () => {
    // Holds must be known before work.
    await work.holds.start();
    if (stopping.signal.aborted) return;
    startWork(work, { ...tools, clock, live, hints, metrics });
    startExpiry(config, { ...tools, db, clock });
  });
  log.info({ config: printableConfig(config), admin: admin.url }, 'serving');
  return { adminUrl: admin.url };
}

function openMailGate(
  config: Config,
  parts: Tools & {
    readonly clock: Clock;
    readonly relay: Relay;
    readonly mailer: Mailer;
    readonly metrics: ProcessorMetrics;
    readonly warnings: Probe[];
  },
): MailGate {
  const { clock, relay, mailer, metrics, warnings, log, closers } = parts;
  const at = `${relay.host}:${relay.port}`;
  const contact = new Contact({ name: 'Relay', at, setting: 'SMTP_URL' }, log);
  warnings.push(contact.warnings);
  const tell = (outage: Outage | undefined): void =>
    outage === undefined ? contact.ok() : contact.failed(outage.error);
  const setGauges = (outage: Outage | undefined): void => {
    metrics.workerPaused.set({ waits_for: 'relay' }, outage === undefined ? 0 : 1);
    metrics.senderRefused.set(outage?.reason === 'refused' ? 1 : 0);
  };
  setGauges(undefined);
  const gate = new MailGate({
    places: mailPlaces(config),
    pace: openMailPace(config, parts),
    probe: () => mailer.probe(),
    onOutage: (outage) => {
      setGauges(outage);
      tell(outage);
    },
    clock,
    log,
  });
  closers.add('mail gate', () => gate.close());
  closers.add('first contact with the relay', probeUntilGreeted(mailer, tell));
  return gate;
}

/** Reports a relay that refuses us before the first e-mail. */
function probeUntilGreeted(mailer: Mailer, tell: (outage: Outage | undefined) => void): () => void {
  const stop = new AbortController();
  const greet = async (): Promise<void> => {
    const outage = await mailer.probe();
    tell(outage);
    if (outage !== undefined) throw new Error('the relay does not take us');
  };
  const { signal } = stop;
  void retryUntilDone(greet, { ...PROBE_BACKOFF, signal, onFailure: () => {} });
  return () => stop.abort();
}

function openMailPace(
  config: Config,
  { clock, log, closers }: Tools & { readonly clock: Clock },
): MailPace | undefined {
  const { MAIL_PER_SECOND: perSecond, PROCESSOR_REPLICAS: processes } = config;
  if (perSecond === 0) return undefined;
  const redis = createRedis(config.REDIS_URL, { commandTimeoutMs: PACE_TIMEOUT_MS }, log);
  closers.add('mail pace', () => redis.disconnect());
  return new MailPace({ perSecond, processes, redis, clock });
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
    readonly templates: Templates;
    readonly metrics: ProcessorMetrics;
    readonly mailGate: MailGate;
  },
): Work {
  const { db, clock, metrics, closers } = parts;
  const store = new WorkerMoves({
    db,
    retention: {
      completed: config.RETENTION_COMPLETED_DAYS,
      rejected: config.RETENTION_REJECTED_DAYS,
      undeliverable: config.RETENTION_UNDELIVERABLE_DAYS,
      body: config.RETENTION_BODY_DAYS,
    },
    clock,
  });
  const holds = new HoldFollower({
    holds: new PartnerHolds({ db, clock }),
    log: parts.log,
    onHold: metrics.partnersHeld,
  });
  closers.add('holds', () => holds.close());
  const {
    LOGIN_URL: loginUrl,
    LINK_SECRET: linkSecret,
    MAIL_FROM: from,
    MAIL_SUPPORT_CONTACT: supportContact,
  } = config;
  const workers = createWorkers({
    slots: config.PROCESSOR_CONCURRENCY,
    mailGate: parts.mailGate,
    queue: new MailQueue({ db, clock }),
    tools: {
      ...metrics,
      partnerLabels: new PartnerLabels(),
      store,
      holds,
      accounts: new AccountStore({ db, clock }),
      ledger: new LedgerStore({ db, clock }),
      clock,
      log: parts.log,
      mailer: parts.mailer,
      host: hostname(),
      mailSettings: { from, loginUrl, linkSecret, supportContact, templates: parts.templates },
    },
    databaseTakesWrites: () => store.takesWrites(),
    metrics,
  });
  closers.add('outage gate', workers.close);
  return { store, workers, holds };
}

function startWork(
  { store, workers, holds }: Work,
  parts: Tools & {
    readonly clock: Clock;
    readonly live: Probe[];
    readonly hints: HintSender;
    readonly metrics: ProcessorMetrics;
  },
): void {
  const { clock, hints, metrics, live, log, closers } = parts;
  const { applications, line } = workers;
  const consumer = new Consumer({
    closeDeadlineMs: FINISH_WORK_MS,
    work: applications,
    redis: hints.redis,
    clock,
    log,
    sendBack: (left) => hints.send(left),
  });
  live.push(() => consumer.faults(PROGRESS_DEADLINE_MS));
  const stopping = new AbortController();
  void line.run(stopping.signal);
  closers.add(
    'workers',
    async () => {
      stopping.abort();
      // They close together, so that neither takes work while the other waits for a slow relay.
      await Promise.all([consumer.close(), line.close(AbortSignal.timeout(FINISH_WORK_MS))]);
    },
    CLOSE_WORKERS_MS,
  );
  const reconciling = new AbortController();
  void reconcileForever(
    {
      store,
      durable: new DurableSince(clock, () => store.takesWrites()),
      holds,
      clock,
      log,
      requeued: metrics.reconcileRequeued,
      unknown: metrics.reconcileUnknown,
      waiting: async () => {
        const { waiting, prioritized } = await hints.counts();
        return waiting + prioritized;
      },
      worker: applications,
      sendHints: (batch) => hints.send(batch, 'reconcile'),
    },
    reconciling.signal,
  );
  closers.add('reconcile', () => reconciling.abort());
}

function startExpiry(
  config: Config,
  { log, closers, db, clock }: Tools & { readonly db: Db; readonly clock: Clock },
): void {
  const expiring = new AbortController();
  void expireForever(
    {
      clock,
      log,
      releasedDays: config.RETENTION_COMPLETED_DAYS,
      removeBodies: () => removeDueBodies(db, clock),
      forgetReleased: (until) => forgetReleased(db, until),
    },
    expiring.signal,
  );
  closers.add('expiry', () => expiring.abort());
}

function mailPlaces(config: Config): number {
  return config.MAIL_CONNECTIONS === 0 ? config.PROCESSOR_CONCURRENCY : config.MAIL_CONNECTIONS;
}
