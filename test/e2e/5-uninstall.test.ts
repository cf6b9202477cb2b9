/** `helm uninstall` of an evaluation leaves nothing; 6-pages shows what a production leaves. */
import { afterAll, beforeAll } from '@jest/globals';
import { eventually } from '../support/wait.ts';
import { removeRoutes } from './ingress.ts';
import { openWorld, step, type World } from './world.ts';

/** Objects that Kubernetes itself makes in every namespace. */
const KUBERNETES_OWN = ['configmap/kube-root-ca.crt', 'serviceaccount/default'];
const GONE_TIMEOUT_MS = 120_000;
const CLUSTER_WIDE =
  'namespaces,clusterroles,clusterrolebindings,persistentvolumes,customresourcedefinitions';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

/** Lists cluster-wide objects that name the release. */
async function clusterWide(): Promise<string[]> {
  const { items } = await world.kubectl.json<{
    items: { kind: string; metadata: { name: string }; spec?: unknown }[];
  }>(['get', CLUSTER_WIDE]);
  return items
    .filter((item) => JSON.stringify(item).includes(world.release.name))
    .map(({ kind, metadata }) => `${kind.toLowerCase()}/${metadata.name}`);
}

step('`helm uninstall` removes everything, volumes and partner keys too', async () => {
  const { kubectl, release, ingress } = world;
  if (ingress !== undefined) await removeRoutes(kubectl);
  const expected = [...KUBERNETES_OWN, `namespace/${release.namespace}`];
  await kubectl.helmAndWait(['uninstall', release.name]);
  await eventually(
    'everything to be gone but what Kubernetes puts into a namespace',
    async () => {
      const left = [...(await kubectl.everything()), ...(await clusterWide())];
      const ours = left.filter((name) => !expected.includes(name));
      if (ours.length > 0) throw new Error(ours.join(', '));
      return true;
    },
    GONE_TIMEOUT_MS,
  );
});
