/** Constructs the controller's parts. */
import { randomBytes } from 'node:crypto';
import type { Db } from 'mongodb';
import type { Registry } from 'prom-client';
import { AccountQueries } from '../../internal/account/account-queries.ts';
import { directorySource } from '../../internal/controller/directory-source.ts';
import { keepKeysReconciled } from '../../internal/controller/keep-reconciled.ts';
import { Leadership } from '../../internal/controller/leadership.ts';
import { SelfAudit } from '../../internal/controller/self-audit.ts';
import { BacklogWatch } from '../../internal/controller/watch-backlog.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { startAdminServer, type Probe } from '../../internal/platform/admin-server.ts';
import { DatabaseClock } from '../../internal/platform/database-clock.ts';
import type { Clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/settings/settings.ts';
import { watchLog, type Logger } from '../../internal/platform/log.ts';
import { Loops } from '../../internal/platform/loop.ts';
import { redisWarnings } from '../../internal/platform/redis.ts';
import { createMongo, mongoReason } from '../../internal/platform/mongo.ts';
import { connectUntilDone } from '../../internal/platform/mongo-indexes.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { readBacklog, readPartnerBacklog } from '../../internal/submission/backlog.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import {
  createControllerMetrics,
  type ControllerMetrics,
} from '../../internal/telemetry/metrics.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';

export async function startController(
  config: ConfigOf<'controller'>,
  tools: { readonly log: Logger; readonly closers: Closers; readonly registry: Registry },
) {
  const { log, closers, registry } = tools;
  const metrics = createControllerMetrics(registry);

  // This port closes last, so that metrics stay readable during a drain.
  let keyFaults: Probe = () => ['starting'];
  const ready: Probe[] = [() => keyFaults()];
  const warnings: Probe[] = [watchLog(metrics.logLinesDropped)];
  const admin = await startAdminServer({
    host: config.ADMIN_HOST,
    port: config.ADMIN_PORT,
    registry,
    live: [],
    ready,
    warnings,
  });
  closers.add('admin port', () => admin.close());

  const mongo = createMongo(config.MONGODB_URI, 'partner-ingest controller');
  closers.add('mongodb', () => mongo.close());
  const connecting = connectUntilDone(mongo, log);
  closers.add('first contact', () => connecting.stop());
  ready.push(connecting.faults);
  const db = mongo.db(config.MONGODB_DATABASE);
  const loops = new Loops({
    log,
    closers,
    failing: metrics.loopFailing,
    reason: (error) => mongoReason(mongo, error),
  });
  ready.push(connecting.hides(loops.faults));
  warnings.push(connecting.hides(loops.warnings));
  const clock = new DatabaseClock();
  ready.push(connecting.hides(clock.faults));
  clock.follow(db, loops);

  const store = new KeyStore({ db, clock });
  // A restarted container is another holder.
  const holder = `${config.POD_NAME}_${randomBytes(4).toString('hex')}`;
  const { PARTNER_KEYS_SOURCE: from } = config;
  const keeper = keepKeysReconciled({
    ...(from === 'kubernetes'
      ? // The library takes half a second and 130 MB.
        (await import('./wire-kubernetes.ts')).kubernetesParts(config, {
          clock,
          log,
          closers,
          metrics,
        })
      : { source: directorySource(from.directory, clock), report: () => {} }),
    leadership: new Leadership({ lease: store.documents, holder, clock, log, metrics }),
    store,
    holder,
    allowPublished: config.ALLOW_PUBLISHED_SECRETS,
    clock,
    log,
    metrics,
  });
  closers.add('key reconcile', () => keeper.close());
  keyFaults = connecting.hides(keeper.faults);
  warnings.push(keeper.warnings);

  openBacklog(config, { db, clock, metrics, leads: keeper.leads, loops, warnings }, tools);

  log.info({ config: printableConfig(config), admin: admin.url }, 'serving');
  return { adminUrl: admin.url };
}

function openBacklog(
  config: ConfigOf<'controller'>,
  parts: {
    readonly db: Db;
    readonly clock: Clock;
    readonly metrics: ControllerMetrics;
    readonly leads: () => boolean;
    readonly loops: Loops;
    readonly warnings: Probe[];
  },
  { log, closers }: { readonly log: Logger; readonly closers: Closers },
): void {
  const { db, clock, metrics, leads } = parts;
  const queues = new HintSender({ redisUrl: config.REDIS_URL, log });
  closers.add('queues', () => queues.close());
  parts.warnings.push(() => redisWarnings(queues.redis));
  const holds = new PartnerHolds({ db, clock });
  new BacklogWatch({
    clock,
    log,
    metrics,
    leads,
    read: async () =>
      readBacklog(
        db,
        clock.now(),
        (await holds.list()).map(({ _id }) => _id),
      ),
    readPartners: () => readPartnerBacklog(db),
    partnerLabels: new PartnerLabels(),
    jobs: () => queues.counts(),
  }).start(parts.loops);
  new SelfAudit({
    stores: {
      submissions: new SupportQueries(db),
      accounts: new AccountQueries(db),
      holds,
      // The controller knows no retention: an account's request is there for a day at least.
      accountRequestsKeptMs: 0,
    },
    clock,
    leads,
    metrics,
  }).start(parts.loops);
}
