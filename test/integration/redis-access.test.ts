/** A Redis that lets in only some: a user with rights, or who has a certificate. */
import { afterAll, expect, test } from '@jest/globals';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { createServer } from 'node:tls';
import { Redis } from 'ioredis';
import { startRedis } from '../../deploy/local/stores.ts';
import { makeCertificate } from '../support/certificate.ts';
import { folderOfFile } from '../support/folder.ts';
import { listen } from '../support/listen.ts';
import { read } from '../support/pages.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

/** Longer than the limiter waits for an answer. */
const SLOW_MS = 300;
const RIGHTS = read('docs/stores.md').match(/^ACL SETUSER .+$/gm)!;
const USER = 'partner-ingest';
const names = ['ingest', 'processor', 'controller'] as const;
const { world } = await worldOf();
const folder = folderOfFile();
const [pem, key] = ['ca.pem', 'key.pem'].map((name) => join(folder, name)) as [string, string];
let connections = 0;
/** Every other connection ends without a word, as where the alert comes too late to be read. */
let cutsOff = false;

const acl = (line: string): Promise<unknown> => {
  const [command, ...words] = line.replace('PASSWORD', 'secret').split(' ');
  return admin.call(command!, ...words);
};
const isAlone = async (ingest: InProcess): Promise<boolean> =>
  (await world.metric(ingest, 'partner_ingest_limiter_fallback')) === 1;
const aboutRedis = async ({ adminUrl }: InProcess): Promise<readonly string[]> => {
  const { warnings = [] } = (await (await fetch(`${adminUrl}/readyz`)).json()) as {
    readonly warnings?: string[];
  };
  return warnings.filter((words) => words.startsWith('Redis at '));
};

const store = await startRedis({ log: () => {} });
const admin = new Redis(store.url);
makeCertificate(folder);
const redis = new URL(store.url);
const own = { key: readFileSync(key), cert: readFileSync(pem) };
const front = createServer({ ...own, ca: own.cert, requestCert: true }, (client) => {
  const server = connect(Number(redis.port), redis.hostname);
  client.on('error', () => server.destroy()).pipe(server);
  server.on('error', () => client.destroy()).pipe(client);
});
front.on('connection', (socket) => {
  connections += 1;
  if (cutsOff && connections % 2 === 0) socket.destroy();
});
const url = `rediss://127.0.0.1:${await listen(front)}`;
afterAll(async () => {
  admin.disconnect();
  front.close();
  await store.stop();
});

test('the documented rights suffice, also after a slow answer, and a missing one is told', async () => {
  for (const line of RIGHTS) await acl(line);
  const user = Object.assign(new URL(store.url), { username: USER, password: 'secret' });
  const environment = { REDIS_URL: user.href, MAIL_PER_SECOND: '1000' };
  const ingest = await world.start('ingest', environment);
  const processor = await world.start('processor', environment);
  await admin.call('CLIENT', 'PAUSE', SLOW_MS, 'ALL');
  const id = await submit(world, ingest, newApplication());
  expect(await isAlone(ingest)).toBe(true);
  await world.recordIn('completed', id);
  await eventually('the limiter to count in Redis again', async () => !(await isAlone(ingest)));
  for (const process of [ingest, processor])
    expect(String(await aboutRedis(process))).not.toContain('NOPERM');
  expect(await admin.call('ACL', 'LOG')).toEqual([]);

  await acl(`ACL SETUSER ${USER} resetkeys ~{partner-ingest}:*`);
  await submit(world, ingest, newApplication());
  await eventually('the report', async () =>
    String(await aboutRedis(ingest)).includes('we lack a right (NOPERM)'),
  );
  for (const line of RIGHTS) await acl(line);
  await eventually('the end of the report', async () => {
    return !(await isAlone(ingest)) && (await aboutRedis(ingest)).length === 0;
  });
  for (const process of [ingest, processor]) await process.close();
});

test('a client certificate and an authority by settings are enough, also for a restart', async () => {
  const environment = {
    REDIS_URL: url,
    REDIS_TLS_CERT_FILE: pem,
    REDIS_TLS_KEY_FILE: key,
    REDIS_TLS_CA_FILE: pem,
  };
  const [ingest, ...others] = await Promise.all(
    names.map((name) => world.start(name, environment)),
  );
  await world.recordIn('completed', await submit(world, ingest!, newApplication()));
  await eventually('the limiter in Redis', async () => !(await isAlone(ingest!)));
  for (const process of [ingest!, ...others]) expect(await aboutRedis(process)).toEqual([]);

  // A file that is half written, or of another certificate, does not start a process.
  const half = join(folder, 'half.pem');
  writeFileSync(half, readFileSync(key, 'utf8').slice(0, 60));
  await expect(
    world.start('controller', { ...environment, REDIS_TLS_KEY_FILE: half }),
  ).rejects.toThrow('REDIS_TLS_KEY: must be a private key without a passphrase in PEM');
  for (const process of [ingest!, ...others]) await process.close();
});

test('without a certificate every process names the same cause, and the setting', async () => {
  const environment = { REDIS_URL: url, REDIS_TLS_CA_FILE: pem };
  const processes = await Promise.all(names.map((name) => world.start(name, environment)));
  const cause = /: it wants a certificate of ours \(.*\); name one in REDIS_TLS_CERT_FILE/;
  for (const process of processes) {
    await eventually('the cause', async () => cause.test(String(await aboutRedis(process))));
    cutsOff = true;
    const until = connections + 30;
    const told = new Set<string>();
    await eventually('more refusals', async () => {
      for (const words of await aboutRedis(process)) told.add(words);
      return connections > until;
    });
    cutsOff = false;
    // A full machine may be too slow to connect.
    expect([...told].filter((words) => !words.includes('no answer in time'))).toEqual([
      expect.stringMatching(cause),
    ]);
    await process.close();
  }
});
