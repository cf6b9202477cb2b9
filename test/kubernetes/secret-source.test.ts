/** The Kubernetes API passes the tests of a source of partner Secrets. */
import { describe } from '@jest/globals';
import { CoreV1Api } from '@kubernetes/client-node';
import { kubernetesSource } from '../../internal/controller/kubernetes-source.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { Kubernetes } from '../../internal/platform/process/kubernetes.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { Cluster } from '../support/cluster.ts';
import { secretSourceConformance } from '../support/secret-source-conformance.ts';

describe('the Kubernetes API', () => {
  secretSourceConformance(async () => {
    const cluster = new Cluster();
    const [home, namespace] = [await cluster.namespace('home'), await cluster.namespace('keys')];
    await cluster.grant(home, namespace);
    const kubernetes = new Kubernetes(await cluster.controllerKubeconfig(home));
    return {
      source: kubernetesSource(namespace, {
        kubernetes,
        core: kubernetes.client(CoreV1Api, 5_000),
        clock,
        log: createLogger('test', 'silent'),
        metrics: createControllerMetrics(createRegistry('controller')),
      }),
      namespace,
      apply: (name, wish) => cluster.apply(namespace, name, wish),
      remove: (name) => cluster.remove(namespace, name),
      addStranger: async () => {
        await cluster.core.createNamespacedSecret({
          namespace,
          body: { metadata: { name: 'stranger' }, stringData: { a: 'b' } },
        });
      },
      harm: () => cluster.allowSecrets(home, namespace, false),
      heal: () => cluster.allowSecrets(home, namespace, true),
    };
  });
});
