/**
 * A Redis behind one address that fails over. The old primary keeps its connections, and refuses
 * writes or hangs.
 */
import { afterAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { startRedis, type Store } from '../../deploy/local/stores.ts';
import { queuePrefixOf } from '../support/installation-id.ts';
import { submit } from '../support/processing.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const { world } = await worldOf();
const quiet = { log: () => {} };
const stores = await Promise.all([startRedis(quiet), startRedis(quiet)]);
const clients = [new Redis(stores[0].url), new Redis(stores[1].url)] as const;
const proxy = await startTcpProxy(stores[0].url);
const [ingest, processor] = await Promise.all([
  world.spawn('ingest', { REDIS_URL: proxy.url }),
  world.spawn('processor', { REDIS_URL: proxy.url }),
]);
let current: 0 | 1 = 0;

afterAll(async () => {
  await proxy.close();
  for (const client of clients) client.disconnect();
  await Promise.all(stores.map((store) => store.stop()));
});

/** Limiter, hints and workers use Redis, and an application is completed. */
async function expectAllUses(): Promise<void> {
  const count = (name: string, labels: Record<string, string>): Promise<number> =>
    world.metric(ingest, `partner_ingest_${name}`, labels);
  const [hints, decisions] = [
    ['hints_total', { result: 'sent' }],
    ['limiter_decisions_total', { store: 'redis' }],
  ] as const;
  const before = [await count(...hints), await count(...decisions)];
  await eventually('the limiter and the hints to use Redis', async () => {
    await submit(world, ingest, newApplication());
    const now = [await count(...hints), await count(...decisions)];
    return now.every((value, index) => value > before[index]!);
  });
  await world.recordIn('completed', await submit(world, ingest, newApplication()));
  const live = await fetch(`${processor.adminUrl}/livez`);
  expect([live.status, await live.text()]).toEqual([200, expect.any(String)]);
}

test.each<[string, (old: Redis, next: Store) => Promise<unknown>]>([
  [
    'refuses writes on the connections it keeps',
    (old, next) => old.replicaof('127.0.0.1', new URL(next.url).port),
  ],
  ['is silent on the connections it has', async () => proxy.deafen()],
])('every use of Redis moves to the new primary from one that %s', async (_how, harm) => {
  await expectAllUses();
  const next = current === 0 ? 1 : 0;
  await clients[next].replicaof('127.0.0.1', new URL(stores[current].url).port);
  await eventually('the replica to be in step', async () =>
    (await clients[next].info('replication')).includes('master_link_status:up'),
  );
  await clients[next].replicaof('NO', 'ONE');
  proxy.redirect(stores[next].url);
  await harm(clients[current], stores[next]);
  current = next;
  await expectAllUses();
  const prefix = await queuePrefixOf(world.stores.db);
  expect(await clients[next].exists(`${prefix}:applications:meta`)).toBe(1);
});
