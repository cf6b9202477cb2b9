/** Constructs the controller's parts. */
import { randomBytes } from 'node:crypto';
import { AccountQueries } from '../../internal/account/account-store.ts';
import { directorySource } from '../../internal/controller/directory-source.ts';
import { Leadership } from '../../internal/controller/leadership.ts';
import { OwnedLease } from '../../internal/controller/owned-lease.ts';
import { KeyKeeper } from '../../internal/controller/reconcile-partner-keys.ts';
import { selfAudit } from '../../internal/controller/self-audit.ts';
import { standingProbe } from '../../internal/controller/standing-probe.ts';
import { removeOldQueue, watchBacklog } from '../../internal/controller/watch-backlog.ts';
import { hashApiKey } from '../../internal/partner/api-key.ts';
import { KeptFindings } from '../../internal/partner/kept-findings.ts';
import { Installation } from '../../internal/installation/installation.ts';
import { PutAside } from '../../internal/self-audit/walk.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import {
  keysOf,
  printableConfig,
  redisOf,
  type ConfigOf,
} from '../../internal/settings/settings.ts';
import {
  openProcess,
  type Opened,
  type ProcessTools,
} from '../../internal/platform/open-process.ts';
import { defined } from '../../internal/platform/process/defined.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { keysKnownByAll } from '../../internal/traffic/living-pods.ts';
import { TrafficCounter } from '../../internal/traffic/traffic-counter.ts';
import {
  createControllerMetrics,
  type ControllerMetrics,
} from '../../internal/telemetry/metrics.ts';

export async function startController(config: ConfigOf<'controller'>, tools: ProcessTools) {
  const metrics = createControllerMetrics(tools.registry);
  const opened = await openProcess(config, { name: 'controller', metrics }, tools);
  const { db, contact, clock, ready, warnings } = opened;
  const store = new KeyStore({ db, clock });
  // A restarted container is another holder.
  const holder = `${config.POD_NAME}_${randomBytes(4).toString('hex')}`;
  const installation = new Installation(opened);
  const parts = { ...opened, store, holder, installation };
  const lease = new OwnedLease({
    ...parts,
    documents: store.documents,
    store: installation.store,
    mine: keysOf(config),
  });
  const leadership = new Leadership({ ...parts, lease });
  tools.closers.add('lease', () => leadership.close());
  const keeper = new KeyKeeper({
    ...parts,
    ...(await openSource(config, { ...parts, leadership })),
    leadership,
    allowPublished: config.ALLOW_PUBLISHED_SECRETS,
    ...(config.PROBE_KEY === undefined ? {} : { probeHash: hashApiKey(config.PROBE_KEY) }),
  });
  ready.push(
    contact.hides(installation.faults),
    contact.hides(lease.faults),
    contact.hides(leadership.faults),
    contact.hides(keeper.faults),
  );
  warnings.push(keeper.warnings, lease.warnings);

  const holds = new PartnerHolds({ db, clock });
  const queues = new HintSender({ ...parts, ...redisOf(config) });
  installation.follow((id) => queues.follow(id));
  tools.closers.add('queues', () => queues.close());
  const traffic = new TrafficCounter(parts);
  tools.closers.add('traffic', () => traffic.close());
  leadership.start(watchBacklog({ ...parts, holds, queues, traffic }));
  leadership.start(removeOldQueue(queues));
  const stores = {
    submissions: new SupportQueries(db),
    accounts: new AccountQueries(db),
    holds,
    aside: new PutAside(db),
    // The controller knows no retention: an account's request is there for a day at least.
    accountRequestsKeptMs: 0,
  };
  leadership.start(selfAudit({ ...parts, stores, kept: new KeptFindings(db) }));
  const { PROBE_KEY: key, PROBE_URL: baseUrl } = config;
  // Without a probe there is no value: 0 would be a failure.
  if (key === undefined) {
    metrics.probeSuccess.remove();
    metrics.probeMailSuccess.remove();
  } else {
    const target = { baseUrl, key, setting: 'PROBE_URL (chart: probe.url)' };
    const read = (id: string) => stores.submissions.byId(id);
    const mails = config.PROBE_MAIL_TO === undefined ? undefined : { read };
    leadership.start(standingProbe({ ...parts, target, ...defined({ mails }) }));
  }

  opened.serving({ config: printableConfig(config) });
  return { adminUrl: opened.adminUrl };
}

type SourceParts = Opened<ControllerMetrics> & {
  readonly store: KeyStore;
  readonly leadership: Leadership;
};

/** The source of partner Secrets, and where else than in the log their problems are reported. */
async function openSource(config: ConfigOf<'controller'>, parts: SourceParts) {
  const { PARTNER_KEYS_SOURCE: from, WATCH_NAMESPACES: namespace = '' } = config;
  if (from !== 'kubernetes')
    return { source: directorySource(from.directory, parts.clock), report: () => {} };
  // The library takes half a second and 130 MB.
  const { CoreV1Api, CustomObjectsApi } = await import('@kubernetes/client-node');
  const { Kubernetes } = await import('../../internal/platform/process/kubernetes.ts');
  const { CALL_TIMEOUT_MS, kubernetesSource } =
    await import('../../internal/controller/kubernetes-source.ts');
  const { SecretEvents } = await import('../../internal/controller/secret-events.ts');
  const kubernetes = new Kubernetes(config.KUBECONFIG);
  const core = kubernetes.client(CoreV1Api, CALL_TIMEOUT_MS);
  const events = new SecretEvents(config.POD_NAME, { ...parts, core });
  parts.closers.add('events', () => events.close());
  const report = events.tell.bind(events);
  if (!config.WATCH_PARTNERS)
    return { source: kubernetesSource(namespace, { ...parts, kubernetes, core }), report };
  const { PartnerStatus } = await import('../../internal/controller/partner-status.ts');
  const custom = kubernetes.client(CustomObjectsApi, CALL_TIMEOUT_MS);
  const source = kubernetesSource(namespace, { ...parts, kubernetes, core, custom });
  const keysKnown = () => keysKnownByAll(parts.db, parts.clock);
  const { reconciled } = new PartnerStatus({ ...parts, kubernetes, custom, keysKnown });
  return { source, report, reconciled };
}
