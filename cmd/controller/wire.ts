/** What the controller consists of: the one place that constructs its clients and parts and puts them together. */
import { directorySource } from '../../internal/controller/directory-source.ts';
import { keepKeysReconciled } from '../../internal/controller/keep-reconciled.ts';
import type { SecretSource } from '../../internal/controller/secret-source.ts';
import { KEYS_CHANGED_CHANNEL, KeyStore, partnerIndexes } from '../../internal/partner/key-store.ts';
import { startAdminServer, type Probe } from '../../internal/platform/admin-server.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/platform/config.ts';
import type { Logger } from '../../internal/platform/log.ts';
import { createMongo, ensureIndexesUntilDone } from '../../internal/platform/mongo.ts';
import { createRedis } from '../../internal/platform/redis.ts';
import { createControllerMetrics, createRegistry } from '../../internal/telemetry/metrics.ts';

/** A notification that Redis does not take within this time is not needed: ingest reads the keys every 15 s anyway. */
const NOTIFY_TIMEOUT_MS = 500;

/** Opens everything and keeps the stored keys as the Secrets ask for. Rejects when the admin port cannot be had. */
export async function startController(
  config: ConfigOf<'controller'>,
  tools: { readonly log: Logger; readonly closers: Closers },
) {
  const { log, closers } = tools;
  const registry = createRegistry('controller');
  const metrics = createControllerMetrics(registry);
  const source = secretSource(config.PARTNER_KEYS_SOURCE);

  // Opened first, so that it is closed last: metrics can be read until the end of a drain.
  let synced = (): boolean => false;
  const ready: Probe[] = [
    () => (synced() ? [] : ['the partner Secrets have not been reconciled completely yet; see the log']),
  ];
  const admin = await startAdminServer({ host: config.ADMIN_HOST, port: config.ADMIN_PORT, registry, live: [], ready });
  closers.add('admin port', () => admin.close());

  const mongo = createMongo(config.MONGODB_URI, 'partner-ingest controller');
  closers.add('mongodb', () => mongo.close());
  const db = mongo.db(config.MONGODB_DATABASE);
  const indexes = ensureIndexesUntilDone(db, partnerIndexes, log);
  closers.add('indexes', () => indexes.stop());
  ready.push(indexes.faults);
  const redis = createRedis(config.REDIS_URL, { for: 'commands', commandTimeoutMs: NOTIFY_TIMEOUT_MS }, log);
  closers.add('redis', () => redis.disconnect());

  const keeper = keepKeysReconciled({
    source,
    store: new KeyStore({ db, clock }),
    clock,
    log,
    metrics,
    notify: async () => void (await redis.publish(KEYS_CHANGED_CHANNEL, 'changed')),
  });
  closers.add('key reconcile', () => keeper.close());
  synced = keeper.synced;

  log.info({ config: printableConfig(config), admin: admin.url }, 'serving');
  return { adminUrl: admin.url };
}

/** The Kubernetes source joins here. */
function secretSource(setting: string): SecretSource {
  const path = /^directory:(.+)$/.exec(setting)?.[1];
  if (path === undefined) {
    throw new Error('PARTNER_KEYS_SOURCE=kubernetes is not part of this version yet; use directory:PATH');
  }
  return directorySource(path);
}
