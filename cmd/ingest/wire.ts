/** Constructs ingest's parts. */
import type { AddressInfo } from 'node:net';
import type { Registry } from 'prom-client';
import { lastAnswers } from '../../internal/ingest/last-answers.ts';
import {
  DRAIN_DEADLINE_MS,
  LAST_ANSWERS_MS,
  LIMITER_PROBE_MS,
} from '../../internal/ingest/limits.ts';
import { openApiDocument } from '../../internal/ingest/openapi.ts';
import { OutageLog } from '../../internal/ingest/outage-log.ts';
import { SharedLimiterStore } from '../../internal/ingest/rate-limit.ts';
import { createIngestServer } from '../../internal/ingest/server.ts';
import {
  displayAddress,
  listenHost,
  startAdminServer,
  type Probe,
} from '../../internal/platform/admin-server.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/settings/settings.ts';
import { DatabaseClock } from '../../internal/platform/database-clock.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { watchLog, type Logger } from '../../internal/platform/log.ts';
import { sdkVariables, wantsTraces } from '../../internal/settings/otel-settings.ts';
import { createRedis, redisWarnings } from '../../internal/platform/redis.ts';
import { startTracing } from '../../internal/platform/tracing.ts';
import { createIngestMetrics } from '../../internal/telemetry/metrics.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';
import { openStores, type Parts } from './wire-stores.ts';

/** Listens before readiness, which needs the indexes and the keys. */
export async function startIngest(
  config: ConfigOf<'ingest'>,
  tools: { readonly log: Logger; readonly closers: Closers; readonly registry: Registry },
) {
  const { log, closers, registry } = tools;
  const state = { serving: false };
  const draining = new AbortController();
  const { signal: drain } = draining;
  const ready: Probe[] = [
    () => (state.serving ? [] : ['starting']),
    () => (drain.aborted ? ['draining'] : []),
  ];
  const metrics = createIngestMetrics(registry);
  const partnerLabels = new PartnerLabels();
  const warnings: Probe[] = [watchLog(metrics.logLinesDropped)];
  const clock = new DatabaseClock();
  const parts: Parts = { clock, log, closers, metrics, partnerLabels, ready, warnings, drain };
  const settings = settingsOf(config);
  // This port closes last, so that metrics stay readable during a drain.
  const admin = await openAdmin(config, registry, { ready, warnings });
  closers.add('admin port', () => admin.close());
  if (wantsTraces(config)) {
    const traces = await startTracing({
      serviceName: config.OTEL_SERVICE_NAME ?? 'partner-ingest-ingest',
      variables: sdkVariables(config),
      log,
    });
    warnings.push(traces.warnings);
    closers.add('traces', () => traces.close());
  }

  const limiter = openLimiter(config, parts);
  const outages = new OutageLog({ clock, log });
  const stores = openStores(config, parts);
  const app = await createIngestServer(settings, {
    ...parts,
    retention: {
      malformedDays: config.RETENTION_MALFORMED_DAYS,
      refusedDays: config.RETENTION_REFUSED_DAYS,
    },
    acceptLog: config.LOG_ACCEPTS ? log : undefined,
    limiter,
    ...stores,
    record: async (record) => {
      const result = await stores.record(record);
      outages.note(result);
      return result;
    },
  });
  closers.add('partner port', () => app.close(), DRAIN_DEADLINE_MS);
  await app.listen({ host: listenHost(config.HTTP_HOST), port: config.HTTP_PORT });
  closers.add(
    'endpoint',
    async () => {
      draining.abort();
      await pause(config.SHUTDOWN_DELAY_MS);
      await lastAnswers(app.server, LAST_ANSWERS_MS);
    },
    config.SHUTDOWN_DELAY_MS + LAST_ANSWERS_MS + 1_000,
  );

  state.serving = true;
  const url = `http://${displayAddress(app.server.address() as AddressInfo)}`;
  log.info({ config: printableConfig(config), url, admin: admin.url }, 'serving');
  return { url, adminUrl: admin.url };
}

function openAdmin(
  config: ConfigOf<'ingest'>,
  registry: Registry,
  probes: { readonly ready: Probe[]; readonly warnings: Probe[] },
) {
  return startAdminServer({
    host: config.ADMIN_HOST,
    port: config.ADMIN_PORT,
    registry,
    live: [],
    ...probes,
    documents: { '/openapi.json': openApiDocument(settingsOf(config)) },
  });
}

function settingsOf(config: ConfigOf<'ingest'>) {
  return {
    trustedProxies: config.TRUSTED_PROXIES,
    keepAliveSeconds: config.HTTP_KEEP_ALIVE_SECONDS,
    rateLimitMax: config.RATE_LIMIT_MAX,
    rateLimitWindowSeconds: config.RATE_LIMIT_WINDOW_SECONDS,
    statusEndpoint: config.STATUS_ENDPOINT,
  };
}

function openLimiter(config: ConfigOf<'ingest'>, { log, closers, metrics, warnings }: Parts) {
  const redis = createRedis(
    config.REDIS_URL,
    { commandTimeoutMs: LIMITER_PROBE_MS, autoPipeline: true },
    log,
  );
  const limiter = new SharedLimiterStore({ redis, metrics, log });
  warnings.push(() => redisWarnings(redis), limiter.warnings);
  closers.add('limiter', () => {
    limiter.close();
    redis.disconnect();
  });
  return limiter;
}
