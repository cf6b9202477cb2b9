/** The service works as the Redis user of docs/stores.md, and reports a right that it lacks. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { startRedis, type Store } from '../../deploy/local/stores.ts';
import { read } from '../support/pages.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

const FALLBACK = 'partner_ingest_limiter_fallback';
/** Longer than the limiter waits for an answer. */
const SLOW_MS = 300;
const RIGHTS = read('docs/stores.md').match(/^ACL SETUSER .+$/gm)!;
const USER = 'partner-ingest';
const { world } = await worldOf();
let store: Store;
let admin: Redis;
let [ingest, processor]: InProcess[] = [];

const acl = (line: string): Promise<unknown> => {
  const [command, ...words] = line.replace('PASSWORD', 'secret').split(' ');
  return admin.call(command!, ...words);
};
const isAlone = async (): Promise<boolean> => (await world.metric(ingest!, FALLBACK)) === 1;
const readiness = async (process: InProcess): Promise<string> =>
  await (await fetch(`${process.adminUrl}/readyz`)).text();

beforeAll(async () => {
  store = await startRedis({ log: () => {} });
  admin = new Redis(store.url);
  for (const line of RIGHTS) await acl(line);
  const url = new URL(store.url);
  [url.username, url.password] = [USER, 'secret'];
  const environment = { REDIS_URL: url.href, MAIL_PER_SECOND: '1000' };
  ingest = await world.start('ingest', environment);
  processor = await world.start('processor', environment);
});
afterAll(async () => {
  admin.disconnect();
  await store.stop();
});

test('the documented rights suffice, also after an answer that was slow', async () => {
  await admin.call('CLIENT', 'PAUSE', SLOW_MS, 'ALL');
  const id = await submit(world, ingest!, newApplication());
  expect(await isAlone()).toBe(true);
  await world.recordIn('completed', id);
  await eventually('the limiter to count in Redis again', async () => !(await isAlone()));
  for (const process of [ingest!, processor!])
    expect(await readiness(process)).not.toContain('NOPERM');
  expect(await admin.call('ACL', 'LOG')).toEqual([]);
});

test('a missing right is reported until it is given', async () => {
  await acl(`ACL SETUSER ${USER} resetkeys ~{partner-ingest}:*`);
  await submit(world, ingest!, newApplication());
  await eventually('the report', async () =>
    (await readiness(ingest!)).includes('we lack a right (NOPERM)'),
  );
  for (const line of RIGHTS) await acl(line);
  await eventually('the end of the report', async () => {
    return !(await isAlone()) && !(await readiness(ingest!)).includes('NOPERM');
  });
});
