/** Partner Secrets in a cluster, a controller and an ingest. */
import { KeyDocuments } from '../../internal/partner/key-document.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { Cluster, type SecretWish } from './cluster.ts';
import { send } from './http.ts';
import { eventually } from './wait.ts';
import { newApplication, openWorld } from './world.ts';

export type KeysWorld = Awaited<ReturnType<typeof openKeysWorld>>;

/** Opens all but a controller; ingest becomes ready once one has synced. */
export async function openKeysWorld() {
  const cluster = new Cluster();
  const home = await cluster.namespace('home');
  const keys = await cluster.namespace('keys');
  await cluster.grant(home, keys);
  const world = await openWorld({ controller: false, documentedRights: true });
  /** Settings of a controller, through `server` if given. */
  const settings = async (server?: string) => ({
    PARTNER_KEYS_SOURCE: 'kubernetes',
    KUBECONFIG: await cluster.controllerKubeconfig(home, server),
    WATCH_NAMESPACES: keys,
    WATCH_PARTNERS: 'true',
    POD_NAME: 'controller-a',
  });
  // Ingest needs a first sync; this controller ends before the test.
  const first = await world.start('controller', await settings());
  const ingest = await world.start('ingest');
  await first.close();

  const status = async (key: string): Promise<number> =>
    (await send(ingest.url, { key, body: JSON.stringify(newApplication()) })).status;
  return {
    world,
    cluster,
    home,
    keys,
    ingest,
    settings,
    status,
    apply: (name: string, wish: SecretWish) => cluster.apply(keys, name, wish),
    remove: (name: string) => cluster.remove(keys, name),
    becomes: (key: string, wanted: number) =>
      eventually(`${wanted}`, async () => (await status(key)) === wanted),
    /** The controller that leads or led last. */
    holder: async () => (await new KeyDocuments({ db: world.stores.db, clock }).read())?.holder,
    close: () => world.close(),
  };
}
