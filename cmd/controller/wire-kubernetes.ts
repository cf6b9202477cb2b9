/** Constructs the controller's parts that need a cluster. */
import { CoreV1Api } from '@kubernetes/client-node';
import { CALL_TIMEOUT_MS, kubernetesSource } from '../../internal/controller/kubernetes-source.ts';
import { SecretEvents } from '../../internal/controller/secret-events.ts';
import type { ConfigOf } from '../../internal/settings/settings.ts';
import { Kubernetes } from '../../internal/platform/kubernetes.ts';
import type { Opened } from '../../internal/platform/open-process.ts';
import type { ControllerMetrics } from '../../internal/telemetry/metrics.ts';

export function kubernetesParts(config: ConfigOf<'controller'>, parts: Opened<ControllerMetrics>) {
  const kubernetes = new Kubernetes(config.KUBECONFIG);
  const core = kubernetes.client(CoreV1Api, CALL_TIMEOUT_MS);
  const events = new SecretEvents(config.POD_NAME, { ...parts, core });
  parts.closers.add('events', () => events.close());
  const source = kubernetesSource(config.WATCH_NAMESPACES ?? '', { ...parts, kubernetes, core });
  return { source, report: events.tell.bind(events) };
}
