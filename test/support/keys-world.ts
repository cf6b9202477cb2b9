/** Partner Secrets in a cluster, a controller and an ingest. */
import { KeyDocuments, type StoredKey } from '../../internal/partner/key-document.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { Cluster, type SecretWish } from './cluster.ts';
import { send } from './http.ts';
import { storedKey } from './stored-keys.ts';
import { HANG_MS, eventually } from './wait.ts';
import { newApplication, openWorld, type InProcess, type World } from './world.ts';

export interface KeysWorld {
  readonly world: World;
  readonly cluster: Cluster;
  /** The namespaces of controller and keys. */
  readonly home: string;
  readonly keys: string;
  readonly ingest: InProcess;
  /** Settings of a controller, through `server` if given. */
  settings(server?: string): Promise<Record<string, string>>;
  apply(name: string, wish: SecretWish): Promise<void>;
  remove(name: string): Promise<void>;
  status(key: string): Promise<number>;
  /** Waits until `key` is answered with `wanted`; returns the milliseconds. */
  becomes(key: string, wanted: number, withinMs?: number): Promise<number>;
  stored(key: string): Promise<StoredKey | undefined>;
  /** The controller that leads or led last. */
  holder(): Promise<string | undefined>;
  close(): Promise<void>;
}

/** Opens all but a controller; ingest becomes ready once one has synced. */
export async function openKeysWorld(): Promise<KeysWorld> {
  const cluster = new Cluster();
  const home = await cluster.namespace('home');
  const keys = await cluster.namespace('keys');
  await cluster.grant(home, keys);
  const world = await openWorld({ controller: false });
  const settings = async (server?: string) => ({
    PARTNER_KEYS_SOURCE: 'kubernetes',
    KUBECONFIG: await cluster.controllerKubeconfig(home, server),
    WATCH_NAMESPACES: keys,
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
    apply: (name, wish) => cluster.apply(keys, name, wish),
    remove: (name) => cluster.remove(keys, name),
    async becomes(key, wanted, withinMs = HANG_MS) {
      const started = performance.now();
      await eventually(`${wanted}`, async () => (await status(key)) === wanted, withinMs);
      return performance.now() - started;
    },
    stored: (key) => storedKey(world.stores.db, key),
    holder: async () => (await new KeyDocuments({ db: world.stores.db, clock }).read())?.holder,
    close: () => world.close(),
  };
}
