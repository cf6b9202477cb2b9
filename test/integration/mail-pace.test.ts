/** The pace of e-mails that all processors keep together, on a real Redis. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MailPace, PACE_TIMEOUT_MS } from '../../internal/mail/mail-pace.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createRedis, type RedisClient } from '../../internal/platform/stores/redis.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';

const SHARED = 20;
const EVERY_MS = 1_000;
const stores = await storesOfFile();
let proxy: TcpProxy;
const clients: RedisClient[] = [];

beforeAll(async () => {
  proxy = await startTcpProxy(stores.redisUrl);
});
afterAll(async () => {
  for (const client of clients) client.disconnect();
  await proxy.close();
});

async function open(url: string): Promise<MailPace> {
  const redis = createRedis(
    url,
    { commandTimeoutMs: PACE_TIMEOUT_MS },
    { log: createLogger('test', 'silent') },
  );
  clients.push(redis);
  await eventually('Redis', () => redis.status === 'ready');
  return new MailPace({ perSecond: 1_000 / EVERY_MS, processes: 3, redis, clock });
}

test('processes share the pace, and without Redis each keeps its part', async () => {
  const [one, other] = await Promise.all([open(stores.redisUrl), open(proxy.url)]);
  // A slow answer counts as none, so the process keeps to its part for a while.
  await eventually('the moments of another process', async () => {
    for (let n = 0; n < SHARED; n += 1) await one.reserve();
    return (await other.reserve()) > (SHARED / 2) * EVERY_MS;
  });

  proxy.park();
  proxy.cut();
  const alone: number[] = [];
  for (let n = 0; n < 4; n += 1) alone.push(await other.reserve());
  expect(alone.at(-1)).toBeLessThanOrEqual(9 * EVERY_MS);

  proxy.pass();
  await eventually('the common pace', async () => {
    for (let n = 0; n < SHARED; n += 1) await one.reserve();
    return (await other.reserve()) > (SHARED / 2) * EVERY_MS;
  });
});
