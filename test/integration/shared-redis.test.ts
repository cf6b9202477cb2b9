/** Two installations on one Redis or Redis Cluster, and the queue of older versions. */
import { afterAll, expect, test } from '@jest/globals';
import { Queue, Worker } from 'bullmq';
import { OldQueue } from '../../internal/queue/enqueue.ts';
import { Closers } from '../../internal/platform/process/closers.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { send } from '../support/http.ts';
import { installationOf } from '../support/installation-id.ts';
import { submit } from '../support/processing.ts';
import { startRedisCluster } from '../support/redis-sets.ts';
import { openTestStores } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld } from '../support/world.ts';

const LIMIT = 20;
const APPLICATIONS = 40;
const closers = new Closers(createLogger('test', 'warn'));
afterAll(() => closers.closeAll());

test.each(['server', 'Cluster'])(
  'two installations on one Redis %s share neither limits nor jobs nor the pace',
  async (kind) => {
    const cluster = kind === 'Cluster' ? await startRedisCluster() : undefined;
    if (cluster !== undefined) closers.add('cluster', () => cluster.stop());
    const there = { REDIS_URL: cluster?.url ?? '', REDIS_TLS_CA_FILE: cluster?.ca ?? '' };
    const one = await openWorld({ environment: cluster === undefined ? {} : there });
    closers.add('one', () => one.close());
    const { REDIS_URL = '', REDIS_TLS_CA_FILE = '' } = one.environment;
    const other = await openWorld({ environment: { REDIS_URL, REDIS_TLS_CA_FILE } });
    closers.add('other', () => other.close());

    const worlds = [other, one];
    for (const world of worlds) {
      const limit = { RATE_LIMIT_MAX: String(LIMIT), RATE_LIMIT_WINDOW_SECONDS: '3600' };
      const ingest = await world.start('ingest', limit);
      const post = async () => (await send(ingest.url, { key: world.key, body: '{}' })).status;
      const inRedis = { store: 'redis' };
      // The first counts may be the pod's own, until Redis has answered.
      const codes: number[] = [];
      await eventually('a count in Redis', async () => {
        codes.push(await post());
        return (await world.metric(ingest, 'partner_ingest_limiter_decisions_total', inRedis)) > 0;
      });
      expect(new Set(codes)).toEqual(new Set([202]));
      if (world === other)
        await eventually('its limit in Redis', async () => {
          const labels = { ...inRedis, decision: 'refused' };
          await post();
          return (await world.metric(ingest, 'partner_ingest_limiter_decisions_total', labels)) > 0;
        });
      await ingest.close();
    }

    // A processor that takes a hint of another drops it; only reconcile then finds the record.
    const pace = { MAIL_PER_SECOND: '1000' };
    await other.start('processor', pace);
    const processor = await one.start('processor', pace);
    const ingest = await one.start('ingest');
    const ids: string[] = [];
    for (let sent = 0; sent < APPLICATIONS; sent += 1)
      ids.push(await submit(one, ingest, newApplication()));
    for (const id of ids) await one.recordIn('completed', id);
    expect(await one.metric(processor, 'partner_ingest_reconcile_requeued_total')).toBe(0);

    const clients = cluster?.members.map(({ client }) => client) ?? [one.stores.redis];
    const names = (await Promise.all(clients.map((client) => client.keys('*')))).flat();
    const [otherId, id] = (
      await Promise.all(worlds.map(({ stores }) => installationOf(stores.db)))
    ).map((found) => found.id);
    const rest = (mine = '') =>
      [...new Set(names.filter((name) => name.includes(mine)))].map((name) =>
        name.replaceAll(mine, 'ID'),
      );
    expect(rest(id)).toEqual(expect.arrayContaining(['partner-ingest:ID:mail-pace']));
    for (const mine of [id, otherId])
      expect(rest(mine)).toEqual(
        expect.arrayContaining([
          'partner-ingest:{ID}:applications:meta',
          expect.stringMatching(/^partner-ingest:ID:limit:/),
        ]),
      );
    expect(names.filter((name) => !name.includes(id!) && !name.includes(otherId!))).toEqual([]);
  },
);

test('the queue of older versions goes once no processor of it is left, with its jobs', async () => {
  const { redis, redisUrl, close } = await openTestStores();
  closers.add('stores', close);
  const { hostname, port, pathname } = new URL(redisUrl);
  const connection = { host: hostname, port: Number(port), db: Number(pathname.slice(1)) };
  const options = { connection, prefix: '{partner-ingest}' };
  const queue = new Queue('applications', options);
  await queue.add('mail', {}, { delay: 3_600_000 });
  await queue.add('account', {});
  await queue.pause();
  const worker = new Worker('applications', async () => {}, { ...options, stalledInterval: 5_000 });
  await eventually('the worker', () => redis.exists('{partner-ingest}:applications:stalled-check'));
  const old = new OldQueue(redis);
  for (let look = 0; look < 4; look += 1) await old.look();
  expect(await queue.getJobCounts('delayed', 'waiting')).toMatchObject({ delayed: 1 });
  await worker.close();
  await queue.close();
  await eventually('the queue to go', async () => {
    await old.look();
    return (await redis.keys('*')).length === 0;
  });
  // Nothing is made again.
  await old.look();
  expect(await redis.keys('*')).toEqual([]);
});
