/** A Redis that asks for a client certificate, and one that takes no writes, are told alike by all. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type Server } from 'node:tls';
import { Redis } from 'ioredis';
import { startRedis, type Store } from '../../deploy/local/stores.ts';
import { makeCertificate } from '../support/certificate.ts';
import { listen } from '../support/listen.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

const FALLBACK = 'partner_ingest_limiter_fallback';
const names = ['ingest', 'processor', 'controller'] as const;
const { world } = await worldOf([], { controller: false });
const folder = mkdtempSync(join(tmpdir(), 'redis-tls-'));
const [pem, key] = ['ca.pem', 'key.pem'].map((name) => join(folder, name)) as [string, string];
let store: Store;
let admin: Redis;
let front: Server;
let url: string;
let connections = 0;
/** Every other connection ends without a word, as where the alert comes too late to be read. */
let cutsOff = false;

const warningsOf = async ({ adminUrl }: InProcess): Promise<readonly string[]> => {
  const answer = await fetch(`${adminUrl}/readyz`);
  return ((await answer.json()) as { warnings?: string[] }).warnings ?? [];
};
const aboutRedis = async (process: InProcess): Promise<readonly string[]> =>
  (await warningsOf(process)).filter((words) => words.startsWith('Redis at '));

beforeAll(async () => {
  store = await startRedis({ log: () => {} });
  admin = new Redis(store.url);
  makeCertificate(folder);
  const redis = new URL(store.url);
  const own = { key: readFileSync(key), cert: readFileSync(pem) };
  front = createServer({ ...own, ca: own.cert, requestCert: true }, (client) => {
    const server = connect(Number(redis.port), redis.hostname);
    client.on('error', () => server.destroy()).pipe(server);
    server.on('error', () => client.destroy()).pipe(client);
  });
  front.on('connection', (socket) => {
    connections += 1;
    if (cutsOff && connections % 2 === 0) socket.destroy();
  });
  url = `rediss://127.0.0.1:${await listen(front)}`;
});
afterAll(async () => {
  admin.disconnect();
  front.close();
  rmSync(folder, { recursive: true });
  await store.stop();
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
  const id = await submit(world, ingest!, newApplication());
  await world.recordIn('completed', id);
  await eventually('the limiter in Redis', async () => {
    return (await world.metric(ingest!, FALLBACK)) === 0;
  });
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
    expect([...told]).toEqual([expect.stringMatching(cause)]);
    await process.close();
  }
});

test('a Redis that takes no writes is told by every process that writes, until it takes them', async () => {
  const environment = { REDIS_URL: store.url };
  const [ingest, processor] = await Promise.all([
    world.start('ingest', environment),
    world.start('processor', environment),
  ]);
  await admin.config('SET', 'min-replicas-to-write', '1');
  await submit(world, ingest, newApplication());
  const cause = /too few of its replicas are there, and it takes no writes \(NOREPLICAS\)/;
  for (const process of [ingest, processor])
    await eventually('the cause', async () => cause.test(String(await aboutRedis(process))));
  await admin.config('SET', 'min-replicas-to-write', '0');
  for (const process of [ingest, processor])
    await eventually('its end', async () => (await aboutRedis(process)).length === 0);
});
