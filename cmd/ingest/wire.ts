/** Constructs ingest's parts. */
import { Registry } from 'prom-client';
import {
  DRAIN_DEADLINE_MS,
  LAST_ANSWERS_MS,
  LIMITER_PROBE_MS,
} from '../../internal/ingest/limits.ts';
import { openApiDocument } from '../../internal/ingest/openapi.ts';
import { SharedLimiterStore } from '../../internal/ingest/rate-limit.ts';
import { createIngestServer } from '../../internal/ingest/server.ts';
import { listenHost, urlOf } from '../../internal/platform/admin-server.ts';
import { printableConfig, redisOf, type ConfigOf } from '../../internal/settings/settings.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { openProcess, type ProcessTools } from '../../internal/platform/open-process.ts';
import { createRedis } from '../../internal/platform/redis.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { createIngestMetrics } from '../../internal/telemetry/metrics.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';
import { openStores, type Parts } from './wire-stores.ts';

/** Listens before readiness, which needs the indexes and the keys. */
export async function startIngest(config: ConfigOf<'ingest'>, tools: ProcessTools) {
  const { log, closers } = tools;
  const settings = settingsOf(config);
  const metrics = createIngestMetrics(tools.registry);
  const openApi = openApiDocument(settings);
  const opened = await openProcess(
    config,
    {
      name: 'ingest',
      metrics,
      indexes: submissionIndexes,
      traced: true,
      documents: { '/openapi.json': openApi },
    },
    tools,
  );
  const { ready, adminUrl, serving } = opened;
  const draining = new AbortController();
  const { signal: drain } = draining;
  ready.push(() => (drain.aborted ? ['draining'] : []));
  const parts: Parts = { ...opened, partnerLabels: new PartnerLabels(), drain };

  const limiter = openLimiter(config, parts);
  const app = await createIngestServer(settings, {
    ...parts,
    retention: {
      malformedDays: config.RETENTION_MALFORMED_DAYS,
      refusedDays: config.RETENTION_REFUSED_DAYS,
    },
    acceptLog: config.LOG_ACCEPTS ? log : undefined,
    limiter,
    openApi: config.OPENAPI_ENDPOINT ? openApi : undefined,
    ...openStores(config, parts),
    metricsOfTests: createIngestMetrics(new Registry()),
  });
  closers.add('partner port', () => app.close(), LAST_ANSWERS_MS + DRAIN_DEADLINE_MS);
  await app.listen({ host: listenHost(config.HTTP_HOST), port: config.HTTP_PORT });
  closers.add(
    'endpoint',
    async () => {
      draining.abort();
      await pause(config.SHUTDOWN_DELAY_MS);
    },
    config.SHUTDOWN_DELAY_MS + 1_000,
  );

  const url = urlOf(app.server);
  serving({ config: printableConfig(config), url });
  return { url, adminUrl };
}

function settingsOf(config: ConfigOf<'ingest'>) {
  return {
    trustedProxies: config.TRUSTED_PROXIES,
    clientHeader: config.CLIENT_ADDRESS_HEADER,
    keepAliveSeconds: config.HTTP_KEEP_ALIVE_SECONDS,
    rateLimitMax: config.RATE_LIMIT_MAX,
    rateLimitWindowSeconds: config.RATE_LIMIT_WINDOW_SECONDS,
    statusEndpoint: config.STATUS_ENDPOINT,
  };
}

function openLimiter(config: ConfigOf<'ingest'>, { log, closers, metrics, warnings }: Parts) {
  const use = { commandTimeoutMs: LIMITER_PROBE_MS, autoPipeline: true } as const;
  const { redisUrl, redisTls } = redisOf(config);
  const redis = createRedis(redisUrl, use, { log, warnings, redisTls });
  const limiter = new SharedLimiterStore({ redis, metrics, log });
  warnings.push(limiter.warnings);
  closers.add('limiter', () => {
    limiter.close();
    redis.disconnect();
  });
  return limiter;
}
