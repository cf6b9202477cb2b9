/** What the controller consists of in a cluster: Secrets, leadership and Events over the Kubernetes API. */
import { randomBytes } from 'node:crypto';
import { CoordinationV1Api, CoreV1Api } from '@kubernetes/client-node';
import { kubernetesSource } from '../../internal/controller/kubernetes-source.ts';
import { LeaseElection } from '../../internal/controller/lease-election.ts';
import { CALL_TIMEOUT_MS, LEASE_CALL_TIMEOUT_MS } from '../../internal/controller/limits.ts';
import { SecretEvents } from '../../internal/controller/secret-events.ts';
import type { KeyStore } from '../../internal/partner/key-store.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import type { ConfigOf } from '../../internal/settings/settings.ts';
import { Kubernetes } from '../../internal/platform/kubernetes.ts';
import type { Logger } from '../../internal/platform/log.ts';
import type { ControllerMetrics } from '../../internal/telemetry/metrics.ts';

/** Throws when no API server is configured; one that is away is no fault. */
export function kubernetesParts(
  config: ConfigOf<'controller'>,
  tools: {
    readonly store: KeyStore;
    readonly log: Logger;
    readonly closers: Closers;
    readonly metrics: ControllerMetrics;
  },
) {
  const { POD_NAME: pod, POD_NAMESPACE: namespace = '', LEASE_NAME: name } = config;
  const { store, log, closers, metrics } = tools;
  const kubernetes = new Kubernetes(config.KUBECONFIG);
  const core = kubernetes.client(CoreV1Api, CALL_TIMEOUT_MS);

  const events = new SecretEvents({ core, instance: pod, clock, log, results: metrics.secretEvents });
  closers.add('events', () => events.close());

  const election = new LeaseElection({
    leases: kubernetes.client(CoordinationV1Api, LEASE_CALL_TIMEOUT_MS),
    namespace,
    name,
    // A container that is started again in the same pod is another holder.
    holder: `${pod}_${randomBytes(4).toString('hex')}`,
    store,
    clock,
    log,
    metrics,
  });
  const source = kubernetesSource(config.WATCH_NAMESPACES, { kubernetes, core, clock, log, metrics });
  return { source, election, report: events.tell.bind(events) };
}
