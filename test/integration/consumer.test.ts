/** Jobs between sender and consumer, and what processors share of e-mails, on a real Redis. */
import { afterAll, afterEach, beforeEach, expect, test } from '@jest/globals';
import { Queue } from 'bullmq';
import { Registry } from 'prom-client';
import { queuePrefix } from '../../internal/installation/installation.ts';
import { MailPace, PACE_TIMEOUT_MS } from '../../internal/mail/mail-pace.ts';
import { refusalOf } from '../../internal/mail/relay-answers.ts';
import { RelayTrust } from '../../internal/mail/relay-trust.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createRedis, type RedisClient } from '../../internal/platform/stores/redis.ts';
import { Consumer } from '../../internal/queue/consume.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { QUEUE, type Hint } from '../../internal/queue/job.ts';
import { createProcessorMetrics } from '../../internal/telemetry/metrics.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';

const log = createLogger('test', 'silent');
const installation = { id: 'here' };

const { redisUrl, redis } = await storesOfFile();
let sender: HintSender;
const consumers: Consumer[] = [];

beforeEach(async () => {
  await redis.flushdb();
  sender = new HintSender({ redisUrl, log });
  sender.follow(installation.id);
  await eventually('Redis to answer', () => sender.ready);
});
afterEach(async () => {
  await Promise.all(consumers.splice(0).map((consumer) => consumer.close()));
  await sender.close();
});

const hint = (id: number): Hint => ({ requestId: `req_${id}`, version: 0, partnerId: 'demo' });
const retry = (id: number, delayMs: number) =>
  ({ ...hint(id), step: 'mail', delayMs, reason: 'throttled', attempt: 2 }) as const;

function startConsumer() {
  const taken: string[] = [];
  const consumer = new Consumer({
    redisUrl,
    log,
    receive: (records, step) => {
      for (const { requestId } of records) taken.push(`${step} ${requestId}`);
    },
  });
  consumer.follow(installation.id);
  consumers.push(consumer);
  return { consumer, taken };
}

test('new applications share jobs, which are removed once their records are claimed', async () => {
  await sender.send(Array.from({ length: 120 }, (_, id) => hint(id)));
  expect(await sender.counts()).toMatchObject({ waiting: 3 });
  const { taken } = startConsumer();
  await eventually('all records', () => taken.length === 120);
  expect(taken[0]).toBe('account req_0');
  await eventually('an empty queue', async () => (await sender.counts()).active === 0);
  expect(await sender.counts()).toEqual({ waiting: 0, active: 0, delayed: 0 });
});

test('each retry is a delayed job with its time, reason and attempt', async () => {
  const { taken } = startConsumer();
  await sender.send([retry(1, 600_000), retry(2, 1_000)]);
  const queue = new Queue(QUEUE, {
    connection: redis,
    prefix: queuePrefix(installation.id),
  });
  const [late] = (await queue.getJobs('delayed')).filter(({ id }) => id === 'req_1-0');
  expect(late).toMatchObject({
    name: 'mail',
    delay: 600_000,
    data: { records: [hint(1)], reason: 'throttled', attempt: 2 },
  });
  await eventually('the other retry', () => taken.length > 0);
  expect(taken).toEqual(['mail req_2']);
  // The same record and version is queued once.
  await sender.send([retry(1, 600_000)]);
  expect(await sender.counts()).toMatchObject({ delayed: 1 });
});

test('beside a delayed job a worker asks again after a second', async () => {
  await sender.send([retry(1, 600_000)]);
  const client = redis.duplicate();
  const monitor = await client.monitor();
  const waits: number[] = [];
  monitor.on('monitor', (_time: string, [command = '', ...given]: readonly string[]) => {
    if (/^bzpopmin$/i.test(command)) waits.push(Number(given.at(-1)));
  });
  startConsumer();
  await eventually('some waits', () => waits.length >= 3);
  for (const one of [monitor, client]) one.disconnect();
  expect(Math.max(...waits)).toBeLessThanOrEqual(1);
});

test('a paused consumer takes no job until it is resumed', async () => {
  const { consumer, taken } = startConsumer();
  await sender.send([hint(1)]);
  await eventually('the first record', () => taken.length === 1);
  consumer.pause();
  // The pending fetch may still return one job.
  await sender.send([hint(2)]);
  await sender.send([hint(3)]);
  const other = startConsumer();
  await eventually('the others', () => taken.length + other.taken.length === 3);
  expect(taken).not.toContain('account req_3');
  await other.consumer.close();
  await sender.send([hint(4)]);
  consumer.resume();
  await eventually('the record after the pause', () => taken.includes('account req_4'));
});

test('after a Redis that was emptied, jobs come again', async () => {
  const { taken } = startConsumer();
  await sender.send([hint(1)]);
  await eventually('a record', () => taken.length === 1);
  await redis.flushdb();
  await eventually('a sent record', async () => {
    await sender.send([hint(2)]);
    return taken.includes('account req_2');
  });
});

const SHARED = 20;
const EVERY_MS = 1_000;
const proxy = await startTcpProxy(redisUrl);
const clients: RedisClient[] = [];
afterAll(async () => {
  for (const client of clients) client.disconnect();
  await proxy.close();
});

async function open(url: string, everyMs = EVERY_MS): Promise<MailPace> {
  const client = createRedis(url, { commandTimeoutMs: PACE_TIMEOUT_MS }, { log });
  clients.push(client);
  await eventually('Redis', () => client.status === 'ready');
  return new MailPace({
    perSecond: 1_000 / everyMs,
    processes: 3,
    redis: client,
    installation,
    clock,
  });
}

test('processes share the pace, and without Redis each keeps its part', async () => {
  const [one, other] = await Promise.all([open(redisUrl), open(proxy.url)]);
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

test('processors share the refusals for good of a day, as hashes', async () => {
  await redis.flushdb();
  const make = async (url: string): Promise<RelayTrust> => {
    const client = createRedis(url, { commandTimeoutMs: 1_000 }, { log });
    clients.push(client);
    await eventually('Redis', () => client.status === 'ready');
    const metrics = createProcessorMetrics(new Registry());
    return new RelayTrust({ at: 'relay', redis: client, installation, metrics, clock, log });
  };
  const processors = [await make(redisUrl), await make(redisUrl), await make(proxy.url)] as const;
  const heard = { result: 'refused', ...refusalOf('rcpt', 550, '550 5.1.1 user unknown') } as const;
  const judge = async (n: number): Promise<unknown> => {
    const account = { _id: `acc_${n}`, email: `ann@n${n % 7}.example` };
    const judged = await processors[n % 3]!.judge(heard, account);
    return 'failure' in judged && judged.failure;
  };
  const classes: unknown[] = [];
  for (let n = 0; n < 6; n += 1) classes.push(await judge(n));
  expect(classes).toEqual([...Array(4).fill('permanent'), 'ours', 'ours']);
  const [key] = await redis.keys('partner-ingest:here:*');
  const before = (await redis.lrange(key!, 0, -1)).join('\n');
  expect(before).not.toMatch(/ann|example|acc_|unknown/);
  expect(await redis.pttl(key!)).toBeGreaterThan(86_000_000);
  for (let n = 10; n < 300; n += 1) await judge(n);
  expect(await redis.llen(key!)).toBe(200);

  // Without Redis the third goes by the third of them that were its own.
  proxy.park();
  proxy.cut();
  expect(await judge(5)).toBe('ours');
  proxy.pass();
});

test("a test's e-mail leaves the moment after a live one to another process", async () => {
  const everyMs = 40_000;
  const [live, tests] = await Promise.all([open(redisUrl, everyMs), open(redisUrl, everyMs)]);
  const moved = async (byMs: number): Promise<void> => {
    const [key] = await redis.keys('*mail-pace*');
    await redis.set(key!, Number(await redis.get(key!)) - byMs * 1_000);
  };
  await redis.flushdb();
  await live.reserve();
  // Its moment was an interval and a quarter ago, and the next live e-mail is being claimed.
  await moved(everyMs * 1.25);
  expect(await tests.reserveNow()).toBeGreaterThan(0);
  expect(await live.reserve()).toBe(0);
  await moved(everyMs * 2);
  expect(await tests.reserveNow()).toBe(0);
  // Without a live one, tests take every moment.
  await moved(everyMs);
  expect(await tests.reserveNow()).toBe(0);
  expect(await live.reserve()).toBeGreaterThan(0);
});
