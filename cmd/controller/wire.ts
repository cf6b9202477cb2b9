/** Constructs the controller's parts. */
import { randomBytes } from 'node:crypto';
import type { Db } from 'mongodb';
import { AccountQueries } from '../../internal/account/account-queries.ts';
import { directorySource } from '../../internal/controller/directory-source.ts';
import { KeyKeeper } from '../../internal/controller/keep-reconciled.ts';
import { SelfAudit } from '../../internal/controller/self-audit.ts';
import { StandingProbe, forgetProbe } from '../../internal/controller/standing-probe.ts';
import { BacklogWatch } from '../../internal/controller/watch-backlog.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import type { Probe } from '../../internal/platform/admin-server.ts';
import type { Clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import { printableConfig, type ConfigOf } from '../../internal/settings/settings.ts';
import type { Logger } from '../../internal/platform/log.ts';
import type { Loops } from '../../internal/platform/loop.ts';
import { openProcess, type ProcessTools } from '../../internal/platform/open-process.ts';
import { redisWarnings } from '../../internal/platform/redis.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { readBacklog, readPartnerBacklog } from '../../internal/submission/backlog.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import {
  createControllerMetrics,
  type ControllerMetrics,
} from '../../internal/telemetry/metrics.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';

export async function startController(config: ConfigOf<'controller'>, tools: ProcessTools) {
  const { log, closers } = tools;
  const metrics = createControllerMetrics(tools.registry);
  const { db, contact, loops, clock, ready, warnings, adminUrl, serving } = await openProcess(
    config,
    { name: 'controller', metrics },
    tools,
  );
  const store = new KeyStore({ db, clock });
  // A restarted container is another holder.
  const holder = `${config.POD_NAME}_${randomBytes(4).toString('hex')}`;
  const { PARTNER_KEYS_SOURCE: from } = config;
  const keeper = new KeyKeeper({
    ...(from === 'kubernetes'
      ? // The library takes half a second and 130 MB.
        (await import('./wire-kubernetes.ts')).kubernetesParts(config, {
          clock,
          log,
          closers,
          metrics,
        })
      : { source: directorySource(from.directory, clock), report: () => {} }),
    store,
    holder,
    allowPublished: config.ALLOW_PUBLISHED_SECRETS,
    clock,
    loops,
    log,
    metrics,
  });
  closers.add('key reconcile', () => keeper.close());
  ready.push(contact.hides(keeper.faults));
  warnings.push(keeper.warnings);

  const leading = { clock, metrics, leads: keeper.leads, loops };
  openBacklog(config, { ...leading, db, warnings }, tools);
  openProbe(config, leading);

  serving({ config: printableConfig(config) });
  return { adminUrl };
}

/** What only the leader does, beside the keys. */
interface Leading {
  readonly clock: Clock;
  readonly metrics: ControllerMetrics;
  readonly leads: () => boolean;
  readonly loops: Loops;
}

function openProbe(config: ConfigOf<'controller'>, leading: Leading): void {
  const { PROBE_KEY: key, PROBE_URL: baseUrl } = config;
  forgetProbe(leading.metrics);
  if (key === undefined) return;
  const target = { baseUrl, key, setting: 'PROBE_URL (chart: probe.url)' };
  new StandingProbe({ ...leading, target }).start(leading.loops);
}

function openBacklog(
  config: ConfigOf<'controller'>,
  parts: Leading & { readonly db: Db; readonly warnings: Probe[] },
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
