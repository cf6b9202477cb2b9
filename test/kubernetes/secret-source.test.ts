/** Both sources of partner Secrets under one suite: a folder of manifests and the Kubernetes API. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe } from '@jest/globals';
import { CoreV1Api } from '@kubernetes/client-node';
import { stringify } from 'yaml';
import { PARTNER_LABEL, STATUS_ANNOTATION } from '../../internal/partner/key-secret.ts';
import { directorySource } from '../../internal/controller/directory-source.ts';
import { kubernetesSource } from '../../internal/controller/kubernetes-source.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { Kubernetes } from '../../internal/platform/kubernetes.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { createControllerMetrics, createRegistry } from '../../internal/telemetry/metrics.ts';
import { Cluster, describeWithApi } from '../support/cluster.ts';
import { secretSourceConformance } from '../support/secret-source-conformance.ts';

describe('a folder', () => {
  secretSourceConformance(async () => {
    const folder = await mkdtemp(join(tmpdir(), 'source-'));
    const write = (file: string, manifest: object) => writeFile(join(folder, file), stringify(manifest));
    return {
      source: directorySource(folder),
      namespace: 'keys',
      apply: (name, { partner, keys = [], status }) =>
        write(`${name}.yaml`, {
          apiVersion: 'v1',
          kind: 'Secret',
          metadata: {
            name,
            namespace: 'keys',
            labels: { [PARTNER_LABEL]: partner },
            annotations: status === undefined ? {} : { [STATUS_ANNOTATION]: status },
          },
          stringData: Object.fromEntries(keys.map((key, index) => [`key-${index + 1}`, key])),
        }),
      remove: (name) => rm(join(folder, `${name}.yaml`)),
      addStranger: () =>
        write('stranger.yaml', {
          apiVersion: 'v1',
          kind: 'Secret',
          metadata: { name: 'stranger' },
          stringData: { a: 'b' },
        }),
      harm: () => writeFile(join(folder, 'broken.yaml'), 'kind: Secret\n  metadata: [broken'),
      heal: () => rm(join(folder, 'broken.yaml')),
    };
  });
});

describeWithApi('the Kubernetes API', () => {
  secretSourceConformance(async () => {
    const cluster = new Cluster();
    const [home, namespace] = [await cluster.namespace('home'), await cluster.namespace('keys')];
    await cluster.grant(home, [namespace]);
    const kubernetes = new Kubernetes(await cluster.controllerKubeconfig(home));
    return {
      source: kubernetesSource([namespace], {
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
