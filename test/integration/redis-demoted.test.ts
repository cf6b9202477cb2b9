/**
 * A Redis that fails over behind one address, as a managed one does: the old primary keeps its
 * connections and refuses writes, or says nothing any more. Each client has to look for the new
 * primary by itself.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { startRedis, type Store } from '../../deploy/local/stores.ts';
import { startFailoverLoad } from '../support/failover.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { openWorld, type World } from '../support/world.ts';

let world: World;
let stores: readonly [Store, Store];
let clients: readonly [Redis, Redis];
let proxy: TcpProxy;
let service: { readonly ingest: ServiceProcess; readonly processor: ServiceProcess };
let current: 0 | 1 = 0;

beforeAll(async () => {
  world = await openWorld();
  const quiet = { log: () => {} };
  stores = await Promise.all([startRedis(quiet), startRedis(quiet)]);
  clients = [new Redis(stores[0].url), new Redis(stores[1].url)];
  proxy = await startTcpProxy(stores[0].url);
  const [ingest, processor] = await Promise.all([
    world.spawn('ingest', { REDIS_URL: proxy.url }),
    world.spawn('processor', { REDIS_URL: proxy.url }),
  ]);
  service = { ingest, processor };
});
afterAll(async () => {
  await world.close();
  await proxy.close();
  for (const client of clients) client.disconnect();
  await Promise.all(stores.map((store) => store.stop()));
});

async function failOver(harm: (old: Redis, next: Store) => Promise<unknown>): Promise<void> {
  const load = startFailoverLoad(world, service);
  await eventually(
    'work to flow',
    async () => (await world.records({ state: 'completed' })).length >= 3,
  );
  const next = current === 0 ? 1 : 0;
  await clients[next].replicaof('127.0.0.1', new URL(stores[current].url).port);
  await eventually('the replica to be in step', async () =>
    (await clients[next].info('replication')).includes('master_link_status:up'),
  );
  await clients[next].replicaof('NO', 'ONE');
  proxy.redirect(stores[next].url);
  await harm(clients[current], stores[next]);
  current = next;
  const hintsSent = (): Promise<number> =>
    world.metric(service.ingest, 'partner_ingest_hints_total', { result: 'sent' });
  const before = await hintsSent();
  const since = new Date();
  await eventually(
    'hints to be sent again',
    async () => (await hintsSent()) > before + 10,
    HANG_MS,
  );
  await eventually(
    'the limiter to count together again',
    async () => (await world.metric(service.ingest, 'partner_ingest_limiter_fallback')) === 0,
    HANG_MS,
  );
  await eventually(
    'an application sent since to be completed',
    async () =>
      (await world.records({ state: 'completed', receivedAt: { $gte: since } })).length > 0,
    HANG_MS,
  );
  const { answers, slowest, flips } = await load.settle();
  console.log(
    JSON.stringify(answers),
    `slowest ${slowest()} s, of those since ${slowest(since)} s, flips ${flips}`,
  );
  // Hints that the old primary took, and nobody had fetched, are gone with it: reconcile finds
  // their records. A hint that a store took and lost is found by reconcile, within half a minute.
  expect(slowest(since)).toBeLessThan(HANG_MS / 1_000);
  expect(await clients[next].exists('{partner-ingest}:applications:meta')).toBe(1);
}

test('a demoted primary that keeps its connections', () =>
  failOver((old, next) => old.replicaof('127.0.0.1', new URL(next.url).port)));

test('a primary that is silent on the connections it has', () =>
  failOver(async () => proxy.deafen()));

test('a demoted primary whose successor is found ten seconds late: work goes on, and nothing flips', async () => {
  const load = startFailoverLoad(world, service);
  await clients[current].replicaof('127.0.0.1', new URL(stores[current === 0 ? 1 : 0].url).port);
  const demotedAt = performance.now();
  await eventually('ten seconds to pass', () => performance.now() - demotedAt > 10_000);
  await clients[current].replicaof('NO', 'ONE');
  await eventually(
    'the limiter to count together again',
    async () => (await world.metric(service.ingest, 'partner_ingest_limiter_fallback')) === 0,
    HANG_MS,
  );
  const { answers, slowest, flips } = await load.settle();
  console.log(JSON.stringify(answers), `slowest ${slowest()} s, limiter flips ${flips}`);
  // A hint that a store took and lost is found by reconcile, within half a minute.
  expect(slowest()).toBeLessThan(HANG_MS / 1_000);
  // There and back again; a busy machine may add one of each. A probe that only asks for an answer
  // flips once a second.
  expect(flips).toBeLessThanOrEqual(4);
});
