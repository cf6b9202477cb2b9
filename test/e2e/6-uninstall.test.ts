/** `helm uninstall` leaves what docs/upgrade.md says, and nothing else. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { Kubectl, soon } from './kubectl.ts';
import { note } from './measured.ts';
import { chartArgs, createNamespace, newRelease, remove, type Release } from './release.ts';
import { openWorld, step, type World } from './world.ts';

/** What Kubernetes itself puts into every namespace. */
const KUBERNETES_OWN = ['configmap/kube-root-ca.crt', 'serviceaccount/default'];
const GONE_TIMEOUT_MS = 120_000;
const CLUSTER_WIDE =
  'namespaces,clusterroles,clusterrolebindings,persistentvolumes,customresourcedefinitions';

let world: World;
let production: Release;
beforeAll(async () => {
  world = await openWorld();
  production = newRelease('prod');
});
afterAll(async () => {
  world.close();
  await remove(world.tools, production);
}, 200_000);

/**
 * Names of what is in no namespace and bears the name of `release`, in itself or in a reference.
 */
async function clusterWide(release: Release): Promise<string[]> {
  const { items } = await world.kubectl.json<{
    items: { kind: string; metadata: { name: string }; spec?: unknown }[];
  }>(['get', CLUSTER_WIDE]);
  return items
    .filter((item) => JSON.stringify(item).includes(release.name))
    .map(({ kind, metadata }) => `${kind.toLowerCase()}/${metadata.name}`);
}

step(
  'evaluation: everything goes, volumes and partner keys too',
  async () => {
    const { kubectl, release } = world;
    await kubectl.helmAndWait(['uninstall', release.name]);
    await soon(
      'everything to be gone but what Kubernetes puts into a namespace',
      async () => {
        const left = (await kubectl.everything()).filter((name) => !KUBERNETES_OWN.includes(name));
        const wide = (await clusterWide(release)).filter(
          (name) => name !== `namespace/${release.namespace}`,
        );
        if (left.length + wide.length > 0) throw new Error([...left, ...wide].join(', '));
        return true;
      },
      GONE_TIMEOUT_MS,
    );
    note('left by `helm uninstall`, evaluation', 'nothing');
  },
  300_000,
);

step(
  'production: the partner keys stay, with their namespace, and an install of the same name takes them over',
  async () => {
    const kubectl = new Kubectl(world.tools, production.namespace);
    await createNamespace(kubectl);
    // No pods: what stays behind is decided by the API server, and there are no stores to connect
    // to.
    const secret = { existingSecret: 'stores' };
    const values = {
      mongodb: secret,
      redis: secret,
      smtp: { ...secret, from: 'welcome@example.com' },
      links: { ...secret, loginUrl: 'https://login.example.com/activate' },
      ingest: { replicaCount: 0 },
      processor: { replicaCount: 0 },
      controller: { replicaCount: 0 },
    };
    const [chart] = chartArgs(world.tools);
    const install = () =>
      kubectl.helmAndWait(['install', production.name, chart ?? '', '--values', '-'], [values]);
    await install();
    await kubectl.apply({
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: {
        name: 'partner-acme',
        namespace: production.keysNamespace,
        labels: { 'partner-ingest.io/partner': 'acme' },
      },
      stringData: { 'key-1': newApiKey() },
    });
    const keys = new Kubectl(world.tools, production.keysNamespace);
    await kubectl.helmAndWait(['uninstall', production.name]);
    const left = (await kubectl.everything()).filter((name) => !KUBERNETES_OWN.includes(name));
    const kept = (await keys.everything()).filter((name) => !KUBERNETES_OWN.includes(name));
    const own = [production.namespace, production.keysNamespace]
      .map((name) => `namespace/${name}`)
      .toSorted();
    expect({ left, kept, wide: (await clusterWide(production)).toSorted() }).toEqual({
      left: [],
      kept: ['secret/partner-acme'],
      wide: own,
    });
    await install();
    expect(await keys.everything()).toContain('secret/partner-acme');
    note(
      'left by `helm uninstall`, production',
      'the namespace of the partner keys, with the Secrets in it',
    );
  },
  200_000,
);
