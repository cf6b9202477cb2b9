/** Contact of whole processes: to a set by DNS, without Redis and relay, with a wrong password. */
import { getServers, lookup, setServers } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import {
  startService,
  type ServiceName,
  type ServiceProcess,
} from '../../deploy/local/processes.ts';
import { createMongo } from '../../internal/platform/stores/mongo.ts';
import { certificateIn, makeCertificate } from '../support/certificate.ts';
import { spawnCli } from '../support/cli.ts';
import { startDnsServer } from '../support/dns-server.ts';
import { fakeServer } from '../support/fake-stores.ts';
import { folderOfFile } from '../support/folder.ts';
import { readinessOf } from '../support/http.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const folder = folderOfFile();
const { world } = await worldOf();
makeCertificate(folder);
const untrusted = await fakeServer(() => undefined, certificateIn(folder));
afterAll(() => untrusted.close());
const { mongodbUri, redisUrl } = world.stores;

test('mongodb+srv finds a set, and lets in who knows its CA, a user and a password', async () => {
  const names = ['one', 'two', 'three'].map((name) => `${name}.mongo.test`);
  const login = { username: 'service', password: 'p@ss:w/rd%1' };
  makeCertificate(folder, ['IP:127.0.0.1', ...names.map((name) => `DNS:${name}`)]);
  const set = await startReplicaSet(mongodbUri, { login });
  const { ports } = await set.door({ certificate: certificateIn(folder) });
  const nameServer = await startDnsServer({
    srv: {
      '_mongodb._tcp.set.mongo.test': names.map((name, index) => ({ name, port: ports[index]! })),
    },
    txt: { 'set.mongo.test': 'replicaSet=rs0&authSource=admin' },
  });
  const servers = getServers();
  setServers([nameServer.address]);
  // Resolves the members' names, which the operating system does not know.
  const here: LookupFunction = (_name, options, callback) => lookup('127.0.0.1', options, callback);
  const user = `${login.username}:${encodeURIComponent(login.password)}`;
  const uri = `mongodb+srv://${user}@set.mongo.test/?tlsCAFile=${join(folder, 'ca.pem')}`;
  try {
    // On a busy machine a client may give up; it then stays closed.
    await eventually('to be let in', async () => {
      const client = createMongo(uri, 'secured', { lookup: here });
      try {
        return await client.db('x').collection('x').insertOne({});
      } finally {
        await client.close();
      }
    });
  } finally {
    setServers(servers);
    await nameServer.close();
    await set.close();
  }
});

test('without Redis and relay a processor is ready, with the sentences of the log as warnings', async () => {
  const service = await world.spawn('processor', {
    REDIS_URL: `redis://poor:wrong@${new URL(redisUrl).host}`,
    SMTP_URL: `smtps://${untrusted.at}`,
  });
  const told = await eventually('its warnings', async () => {
    const { ok, warnings } = await readinessOf(service);
    return ok && warnings.length >= 2 && warnings;
  });
  await eventually('the same on the log', () =>
    told.every((warning) => service.lines.join('\n').includes(JSON.stringify(warning))),
  );
  expect(told.join()).toContain('(WRONGPASS)');
  expect(told.join()).toContain('its certificate is not trusted');
  await service.stop();
});

test('a wrong password is reported once, with the time of its file', async () => {
  const set = await startReplicaSet(mongodbUri, { login: { username: 'a', password: 'b' } });
  const { url } = await set.door();
  const file = join(folder, 'uri');
  writeFileSync(file, url.replace('//', '//a:wrong@'));
  const environment = { ...world.environment, LOG_LEVEL: 'info', MONGODB_URI_FILE: file };
  const run = (name: ServiceName) => startService(name, { ...environment, MONGODB_URI: '' });
  const services: ServiceProcess[] = [];
  try {
    services.push(
      ...(await Promise.all((['controller', 'ingest', 'processor'] as const).map(run))),
    );
    for (const service of services) {
      const { faults, files } = await eventually('the reason', async () => {
        const body = await readinessOf(service);
        const [fault, ...others] = body.faults;
        return others.length === 0 && !/no answer in time| yet$/.test(fault ?? ' yet') && body;
      });
      expect(faults).toEqual([expect.stringMatching(/: it refuses the login .*; check user and/)]);
      expect(files).toEqual({ MONGODB_URI_FILE: statSync(file).mtime.toISOString() });
    }
    writeFileSync(file, 'no URI');
    for (const { lines } of services)
      await eventually('the fault', () => lines.some((line) => line.includes('MONGODB_URI: must')));
    writeFileSync(file, url.replace('//', '//a:b@'));
    for (const { exited } of services) expect(await exited).toEqual({ code: 0, signal: null });
  } finally {
    for (const service of services) await service.stop();
    await set.close();
  }
});

test('the operator reads the same sentence on the terminal', async () => {
  const MONGODB_URI = `mongodb://jane:geheim@${untrusted.at}/?tls=true`;
  const { code, stderr } = await spawnCli({ MONGODB_URI }, 'find', '--state', 'completed');
  expect({ code, stderr }).toEqual({
    code: 3,
    stderr: expect.stringContaining(`MongoDB at ${untrusted.at}: its certificate is not trusted`),
  });
  expect(stderr).not.toContain('geheim');
});
