/** What ingest consists of: the one place that constructs its clients and parts and puts them together. */
import type { AddressInfo } from 'node:net';
import { lastAnswers } from '../../internal/ingest/last-answers.ts';
import {
  DRAIN_DEADLINE_MS,
  LAST_ANSWERS_MS,
  LIMITER_TIMEOUT_MS,
  STATUS_CONNECTIONS,
  STATUS_LOOKUPS,
  STATUS_TIMEOUT_MS,
} from '../../internal/ingest/limits.ts';
import { openApiDocument } from '../../internal/ingest/openapi.ts';
import { OverLimitRecorder, type RateLimitedRecord } from '../../internal/ingest/over-limit.ts';
import { SharedLimiterStore } from '../../internal/ingest/rate-limit.ts';
import { createIngestServer } from '../../internal/ingest/server.ts';
import { KeyCache } from '../../internal/partner/key-cache.ts';
import { KEYS_CHANGED_CHANNEL, KeyStore, partnerIndexes } from '../../internal/partner/key-store.ts';
import { displayAddress, startAdminServer, type Probe } from '../../internal/platform/admin-server.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/platform/config.ts';
import { pause, withDeadline } from '../../internal/platform/deadline.ts';
import type { Logger } from '../../internal/platform/log.ts';
import { connectUntilDone, createMongo, ensureIndexesUntilDone } from '../../internal/platform/mongo.ts';
import { wantsTraces } from '../../internal/platform/otel-settings.ts';
import { createRedis } from '../../internal/platform/redis.ts';
import { startTracing } from '../../internal/platform/tracing.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { HintOutbox } from '../../internal/queue/hint-outbox.ts';
import { GroupCommit } from '../../internal/submission/group-commit.ts';
import { RATE_LIMITED, submissionIndexes } from '../../internal/submission/indexes.ts';
import { groupCommitLimits } from '../../internal/submission/limits.ts';
import { StatusReader } from '../../internal/submission/status-reader.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import { createIngestMetrics, createRegistry } from '../../internal/telemetry/metrics.ts';

/** Opens everything and listens; readiness comes with the indexes and the keys. Rejects when a port cannot be had. */
export async function startIngest(
  config: ConfigOf<'ingest'>,
  tools: { readonly log: Logger; readonly closers: Closers },
) {
  const { log, closers } = tools;
  const registry = createRegistry('ingest');
  const metrics = createIngestMetrics(registry);
  let draining = false;
  let serving = false;

  // Opened first, so that it is closed last: metrics can be read until the end of a drain.
  const ready: Probe[] = [() => (serving ? [] : ['starting']), () => (draining ? ['draining'] : [])];
  const settings = {
    trustedProxies: config.TRUSTED_PROXIES,
    keepAliveSeconds: config.HTTP_KEEP_ALIVE_SECONDS,
    rateLimitMax: config.RATE_LIMIT_MAX,
    rateLimitWindowSeconds: config.RATE_LIMIT_WINDOW_SECONDS,
    statusEndpoint: config.STATUS_ENDPOINT,
  };
  const admin = await startAdminServer({
    host: config.ADMIN_HOST,
    port: config.ADMIN_PORT,
    registry,
    live: [],
    ready,
    documents: { '/openapi.json': openApiDocument(settings) },
  });
  closers.add('admin port', () => admin.close());

  if (wantsTraces(config)) {
    const traces = await startTracing({ serviceName: config.OTEL_SERVICE_NAME ?? 'partner-ingest-ingest', log });
    closers.add('traces', () => traces.close());
  }

  const mongo = createMongo(config.MONGODB_URI, 'partner-ingest ingest');
  closers.add('mongodb', () => mongo.close());
  const db = mongo.db(config.MONGODB_DATABASE);
  // Batches have a client of their own: its socket time-out destroys a hung connection just when the batch gives up.
  const commitMongo = createMongo(config.MONGODB_URI, 'partner-ingest group commit', {
    retryWrites: false,
    socketTimeoutMS: config.ACCEPT_TIMEOUT_MS,
    serverSelectionTimeoutMS: config.ACCEPT_TIMEOUT_MS,
    waitQueueTimeoutMS: config.ACCEPT_TIMEOUT_MS,
    maxPoolSize: groupCommitLimits.maxInFlight + 1,
  });
  closers.add('mongodb group commit', () => commitMongo.close());
  const commitConnection = connectUntilDone(commitMongo, log);
  closers.add('group commit connection', () => commitConnection.stop());
  ready.push(commitConnection.faults);

  const indexes = ensureIndexesUntilDone(db, [...submissionIndexes, ...partnerIndexes], log);
  closers.add('indexes', () => indexes.stop());
  ready.push(indexes.faults);

  const withdrawals = new Withdrawals({
    collection: db.collection<SubmissionRecord>(SUBMISSIONS),
    retentionDays: config.RETENTION_WITHDRAWN_DAYS,
    clock,
    log,
    metrics,
  });
  closers.add(
    'withdrawals',
    async () => {
      await withDeadline(withdrawals.whenSettled(), DRAIN_DEADLINE_MS, 'withdrawals').finally(() => withdrawals.stop());
    },
    DRAIN_DEADLINE_MS + 1_000,
  );

  const commits = new GroupCommit({
    collection: commitMongo.db(config.MONGODB_DATABASE).collection<SubmissionRecord>(SUBMISSIONS),
    limits: groupCommitLimits,
    timeoutMs: config.ACCEPT_TIMEOUT_MS,
    clock,
    metrics,
  });
  closers.add('group commit', () => commits.whenIdle());

  const statusReader = config.STATUS_ENDPOINT ? openStatusReader(config, { log, closers, ready }) : undefined;

  const hints = new HintSender({ redisUrl: config.REDIS_URL, log });
  closers.add('queues', () => hints.close());
  const outbox = new HintOutbox({ send: (batch) => hints.send('applications', batch), results: metrics.hints });
  closers.add('hints', () => outbox.whenEmpty());

  const overLimit = new OverLimitRecorder({
    collection: db.collection<RateLimitedRecord>(RATE_LIMITED),
    windowMs: config.RATE_LIMIT_WINDOW_SECONDS * 1_000,
    retentionDays: config.RETENTION_REFUSED_DAYS,
    clock,
    log,
  });
  closers.add('over-limit counts', () => overLimit.close());

  const limiterRedis = createRedis(
    config.REDIS_URL,
    { for: 'commands', commandTimeoutMs: LIMITER_TIMEOUT_MS, autoPipeline: true },
    log,
  );
  const limiter = new SharedLimiterStore({ redis: limiterRedis, metrics, log });
  closers.add('limiter', () => {
    limiter.close();
    limiterRedis.disconnect();
  });

  const keys = new KeyCache({
    store: new KeyStore({ db, clock }),
    clock,
    log,
    onRefresh: (count, at) => {
      metrics.keys.set(count);
      metrics.keysRefreshedAt.set(at.getTime() / 1_000);
    },
  });
  closers.add('partner keys', () => keys.close());
  keys.start();
  ready.push(() =>
    keys.loaded ? [] : ['partner keys are not loaded yet: has the controller finished its first sync?'],
  );
  const subscriber = createRedis(config.REDIS_URL, { for: 'subscriber' }, log);
  subscriber.on('message', () => void keys.refresh());
  // What changed while Redis was away was not announced.
  subscriber.on('ready', () => void keys.refresh());
  void subscriber.subscribe(KEYS_CHANGED_CHANNEL).catch(() => {});
  closers.add('key notifications', () => subscriber.disconnect());

  const app = await createIngestServer(settings, {
    clock,
    log,
    limiter,
    metrics,
    retention: { malformedDays: config.RETENTION_MALFORMED_DAYS, refusedDays: config.RETENTION_REFUSED_DAYS },
    lookupKey: (key) => keys.lookup(key),
    record: (record) => commits.record(record),
    offer: (record) => commits.offer(record),
    withdraw: (record) => withdrawals.add(record),
    hint: (hint) => outbox.add(hint),
    overLimit: (address, requestId) => overLimit.add(address, requestId),
    readStatus: statusReader && ((requestId, partnerId) => statusReader.read(requestId, partnerId)),
    draining: () => draining,
  });
  closers.add('partner port', () => app.close(), DRAIN_DEADLINE_MS);
  await app.listen({ host: config.HTTP_HOST, port: config.HTTP_PORT });

  closers.add(
    'endpoint',
    async () => {
      draining = true;
      await pause(config.SHUTDOWN_DELAY_MS);
      await lastAnswers(app.server, LAST_ANSWERS_MS);
    },
    config.SHUTDOWN_DELAY_MS + LAST_ANSWERS_MS + 1_000,
  );

  serving = true;
  const url = `http://${displayAddress(app.server.address() as AddressInfo)}`;
  log.info({ config: printableConfig(config), url, admin: admin.url }, 'serving');
  return { url, adminUrl: admin.url };
}

/** Look-ups have a client of their own, too: while MongoDB hangs they take no connection from anyone else. */
function openStatusReader(
  config: ConfigOf<'ingest'>,
  tools: { readonly log: Logger; readonly closers: Closers; readonly ready: Probe[] },
): StatusReader {
  const mongo = createMongo(config.MONGODB_URI, 'partner-ingest status', {
    socketTimeoutMS: STATUS_TIMEOUT_MS,
    serverSelectionTimeoutMS: STATUS_TIMEOUT_MS,
    waitQueueTimeoutMS: STATUS_TIMEOUT_MS,
    maxPoolSize: STATUS_CONNECTIONS,
  });
  tools.closers.add('mongodb status', () => mongo.close());
  const connection = connectUntilDone(mongo, tools.log);
  tools.closers.add('status connection', () => connection.stop());
  tools.ready.push(connection.faults);
  return new StatusReader({
    collection: mongo.db(config.MONGODB_DATABASE).collection<SubmissionRecord>(SUBMISSIONS),
    timeoutMs: STATUS_TIMEOUT_MS,
    maxUnderWay: STATUS_LOOKUPS,
  });
}
