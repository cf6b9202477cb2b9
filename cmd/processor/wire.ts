/** What the processor consists of: the one place that constructs its clients and parts and puts them together. */
import { hostname } from 'node:os';
import { accountIndexes, ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { createMailer } from '../../internal/mail/mailer.ts';
import { relayOf } from '../../internal/mail/relay.ts';
import { loadTemplates } from '../../internal/mail/templates.ts';
import { traceMailer } from '../../internal/mail/trace-mailer.ts';
import { startAdminServer, type Probe } from '../../internal/platform/admin-server.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/platform/config.ts';
import type { Logger } from '../../internal/platform/log.ts';
import { createMongo, ensureIndexesUntilDone } from '../../internal/platform/mongo.ts';
import { wantsTraces } from '../../internal/platform/otel-settings.ts';
import { startTracing, traceFields } from '../../internal/platform/tracing.ts';
import { PROGRESS_DEADLINE_MS } from '../../internal/processor/limits.ts';
import { notifyApplicant } from '../../internal/processor/notify-applicant.ts';
import { OutageGate } from '../../internal/processor/outage.ts';
import { processSubmission } from '../../internal/processor/process-submission.ts';
import { reconcileForever } from '../../internal/processor/reconcile.ts';
import { startConsumer, type Consumer } from '../../internal/queue/consume.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { HintOutbox } from '../../internal/queue/hint-outbox.ts';
import { queueNames, type Hint, type QueueName } from '../../internal/queue/job.ts';
import { progressProbe } from '../../internal/queue/progress.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { SubmissionStore } from '../../internal/submission/submission-store.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { createProcessorMetrics, createRegistry } from '../../internal/telemetry/metrics.ts';

/** Opens everything; takes jobs as soon as the indexes are verified. Rejects when the admin port cannot be had. */
export async function startProcessor(
  config: ConfigOf<'processor'>,
  tools: { readonly log: Logger; readonly closers: Closers },
) {
  const { log, closers } = tools;
  // What an operator may have got wrong comes first, so that a fault opens nothing.
  const relay = relayOf(config.SMTP_URL, config.SMTP_TLS);
  const templates = await loadTemplates(config.MAIL_TEMPLATES);
  const registry = createRegistry('processor');
  const metrics = createProcessorMetrics(registry);

  // Opened first, so that it is closed last: metrics can be read until the end of a drain.
  const [live, ready]: [Probe[], Probe[]] = [[], []];
  const admin = await startAdminServer({ host: config.ADMIN_HOST, port: config.ADMIN_PORT, registry, live, ready });
  closers.add('admin port', () => admin.close());

  if (wantsTraces(config)) {
    const traces = await startTracing({ serviceName: config.OTEL_SERVICE_NAME ?? 'partner-ingest-processor', log });
    closers.add('traces', () => traces.close());
  }

  const mongo = createMongo(config.MONGODB_URI, 'partner-ingest processor');
  closers.add('mongodb', () => mongo.close());
  const db = mongo.db(config.MONGODB_DATABASE);
  const indexes = ensureIndexesUntilDone(db, [...submissionIndexes, ...accountIndexes], log);
  closers.add('indexes', () => indexes.stop());
  ready.push(indexes.faults);

  const store = new SubmissionStore({
    collection: db.collection<SubmissionRecord>(SUBMISSIONS),
    retention: {
      completed: config.RETENTION_COMPLETED_DAYS,
      rejected: config.RETENTION_REJECTED_DAYS,
      undeliverable: config.RETENTION_UNDELIVERABLE_DAYS,
    },
    clock,
  });
  const accounts = new AccountStore({ collection: db.collection<Account>(ACCOUNTS), clock });

  const mailer = traceMailer(
    createMailer({
      relay,
      from: config.MAIL_FROM,
      fromName: config.MAIL_FROM_NAME,
      maxConnections: config.PROCESSOR_CONCURRENCY,
    }),
    relay,
  );
  closers.add('mailer', () => mailer.close());

  const hints = new HintSender({ redisUrl: config.REDIS_URL, log });
  closers.add('queues', () => hints.close());
  const outbox = (queue: QueueName): HintOutbox =>
    new HintOutbox({ send: (batch) => hints.send(queue, batch), results: metrics.hints });
  const outboxes = { applications: outbox('applications'), notifications: outbox('notifications') };

  const consumers = new Map<QueueName, Consumer>();
  const databaseAnswers = async (): Promise<boolean> => (await db.command({ ping: 1 }))['ok'] === 1;
  const gate = (queue: QueueName, probe: () => Promise<boolean>): OutageGate => {
    const made = new OutageGate({
      worker: () => consumers.get(queue)!,
      probe,
      log,
      paused: metrics.workerPaused,
    });
    closers.add(`outage gate ${queue}`, () => made.close());
    metrics.workerPaused.set({ queue }, 0);
    return made;
  };
  const gates = {
    applications: gate('applications', databaseAnswers),
    notifications: gate('notifications', async () => (await databaseAnswers()) && mailer.probe()),
  };

  const work = {
    store,
    accounts,
    clock,
    log,
    gates,
    mailer,
    host: hostname(),
    mailSettings: { from: config.MAIL_FROM, loginUrl: config.LOGIN_URL, linkSecret: config.LINK_SECRET, templates },
    ...metrics,
    hint: (queue: QueueName, hint: Hint) => outboxes[queue].add(hint),
    hintLater: (queue: QueueName, hint: Hint, delayMs: number) => hints.send(queue, [hint], delayMs),
  };
  const handlers = { applications: processSubmission, notifications: notifyApplicant };
  const reconciling = new AbortController();
  let stopping = false;

  const startWork = async (): Promise<void> => {
    await indexes.whenDone;
    if (stopping) return;
    for (const queue of queueNames) {
      const consumer = startConsumer({
        queue,
        redisUrl: config.REDIS_URL,
        concurrency: config.PROCESSOR_CONCURRENCY,
        clock,
        log,
        handle: async (hint) => {
          try {
            await handlers[queue](hint, work);
          } catch (error) {
            // Not even the claim could be asked for: the record is as it was, and due again soon.
            log.warn(
              { request_id: hint.requestId, ...traceFields(hint.traceparent), err: error, queue },
              'job could not start',
            );
            gates[queue].wait();
          }
        },
        putBack: (left) => hints.send(queue, left),
      });
      consumers.set(queue, consumer);
      const waiting = async (): Promise<number> => (await hints.counts(queue))['waiting'] ?? 0;
      live.push(progressProbe({ consumer, waiting, deadlineMs: PROGRESS_DEADLINE_MS, clock }));
      closers.add(`worker ${queue}`, () => consumer.close(), CLOSE_WORKER_MS);
    }
    void reconcileForever(
      {
        store,
        clock,
        log,
        requeued: metrics.reconcileRequeued,
        unknown: metrics.reconcileUnknown,
        waiting: async (queue) => (await hints.counts(queue))['waiting'] ?? 0,
        paused: (queue) => consumers.get(queue)?.paused ?? false,
        sendHints: (queue, batch) => hints.send(queue, batch, 0, 'reconcile'),
      },
      reconciling.signal,
    );
    closers.add('reconcile', () => reconciling.abort());
  };

  closers.add('start of work', () => {
    stopping = true;
  });
  log.info({ config: printableConfig(config), admin: admin.url }, 'serving');
  void startWork();
  return { adminUrl: admin.url };
}

/** Workers finish what they have in hand; a hand-over waiting for its answer may take longer and is left to reconcile. */
const CLOSE_WORKER_MS = 20_000;
