/** Constructs the controller's parts that need a cluster. */
import { CoreV1Api } from '@kubernetes/client-node';
import { CALL_TIMEOUT_MS, kubernetesSource } from '../../internal/controller/kubernetes-source.ts';
import { SecretEvents } from '../../internal/controller/secret-events.ts';
import type { Clock } from '../../internal/platform/clock.ts';
import type { Closers } from '../../internal/platform/closers.ts';
import type { ConfigOf } from '../../internal/settings/settings.ts';
import { Kubernetes } from '../../internal/platform/kubernetes.ts';
import type { Logger } from '../../internal/platform/log.ts';
import type { ControllerMetrics } from '../../internal/telemetry/metrics.ts';

export interface KubernetesTools {
  readonly clock: Clock;
  readonly log: Logger;
  readonly closers: Closers;
  readonly metrics: ControllerMetrics;
}

export function kubernetesParts(config: ConfigOf<'controller'>, parts: KubernetesTools) {
  const kubernetes = new Kubernetes(config.KUBECONFIG);
  const core = kubernetes.client(CoreV1Api, CALL_TIMEOUT_MS);
  const events = new SecretEvents(config.POD_NAME, { ...parts, core });
  parts.closers.add('events', () => events.close());
  const source = kubernetesSource(config.WATCH_NAMESPACES ?? '', { ...parts, kubernetes, core });
  return { source, report: events.tell.bind(events) };
}
