/** Waits that hear of their end from a processor, without a look in between. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Statuses } from '../../internal/ingest/look-up-status.ts';
import type { Owner } from '../../internal/fair/shares.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createRedis } from '../../internal/platform/stores/redis.ts';
import { hearEnds } from '../../internal/queue/consume.ts';
import { EndSender } from '../../internal/queue/enqueue.ts';
import { StatusReader, type StatusRecord } from '../../internal/submission/status-reader.ts';
import { installationOf } from '../support/installation-id.ts';
import { newRecord } from '../support/records.ts';
import { submit } from '../support/processing.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor']);
const log = createLogger('test', 'silent');
const owner: Owner = ['demo', '127.0.0.1'];
const WAIT_MS = 30_000;
const { redisUrl, db, redis } = world.stores;
/** The ids of all messages. */
const heard: string[] = [];

const proxy = await startTcpProxy(redisUrl);
const reader = new StatusReader({ db });
// Its rounds never come, so only what is heard ends a wait early.
const loops = { start: () => undefined as never };
const statuses = new Statuses({ reader, loops, drain: new AbortController().signal });
const installation = await installationOf(db);
const client = createRedis(proxy.url, { commandTimeoutMs: 1_000 }, { log });
const close = hearEnds(client, installation, (ids) => {
  heard.push(...ids);
  statuses.ended(ids);
});
beforeAll(() => eventually('the subscription', isHeard));
afterAll(async () => {
  close();
  await proxy.close();
});

const sender = new EndSender(redis, installation);
/** Whether a message arrives; others may have been lost before. */
async function isHeard(): Promise<boolean> {
  const { _id: probe } = newRecord();
  sender.add(probe);
  return eventually('the probe', () => heard.includes(probe), 500).catch(() => false);
}

const { signal } = new AbortController();
const wait = async (record: StatusRecord) =>
  (await statuses.wait(record, owner, WAIT_MS, signal)).record.state;
const waitFor = async (id: string) => wait((await statuses.find(id, owner, signal))!);

test.each([
  ['completed', () => newApplication()],
  ['rejected', () => ({})],
] as const)('a wait ends as soon as a processor has %s its submission', async (state, fields) => {
  const id = await submit(world, ingest, fields());
  expect(await waitFor(id)).toBe(state);
  expect(heard.filter((each) => each === id)).toHaveLength(1);
});

test.each<[string, () => Promise<unknown>]>([
  ['broke', async () => proxy.cut()],
  ['is silent', async () => proxy.deafen()],
])('it hears again after its connection %s', async (_how, harm) => {
  await harm();
  await eventually('a message', isHeard);
  const id = await submit(world, ingest, newApplication());
  expect(await waitFor(id)).toBe('completed');
});
