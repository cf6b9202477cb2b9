/** Each usual fault with a server has one sentence in the log, in `/readyz` and on the terminal. */
import { getServers, lookup, setServers } from 'node:dns';
import { createServer, type AddressInfo, type LookupFunction, type Server } from 'node:net';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:tls';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CoreV1Api } from '@kubernetes/client-node';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { startMongo, startRedis, type Store } from '../../deploy/local/stores.ts';
import {
  startService,
  type ServiceName,
  type ServiceProcess,
} from '../../deploy/local/processes.ts';
import { createMailer } from '../../internal/mail/mailer.ts';
import { relayOf } from '../../internal/mail/relay.ts';
import { allOf, type Probe } from '../../internal/platform/process/probe.ts';
import { contactFault } from '../../internal/platform/process/contact-failure.ts';
import { Kubernetes } from '../../internal/platform/process/kubernetes.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { connectMongo, createMongo, mongoFault } from '../../internal/platform/stores/mongo.ts';
import { createRedis } from '../../internal/platform/stores/redis.ts';
import { makeCertificate } from '../support/certificate.ts';
import { spawnCli } from '../support/cli.ts';
import { startDnsServer } from '../support/dns-server.ts';
import { readinessOf } from '../support/http.ts';
import { listen } from '../support/listen.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const folder = mkdtempSync(join(tmpdir(), 'first-contact-'));
const log = createLogger('test', 'silent');
const SHORT_MS = 500;

let own: { readonly redis: Store; readonly mongo: Store };
const { world } = await worldOf();
let untrusted: Server;
/** Accepts connections and sends nothing. */
let silent: Server;

beforeAll(async () => {
  makeCertificate(folder);
  const [key, cert] = ['key.pem', 'ca.pem'].map((name) => readFileSync(join(folder, name)));
  untrusted = createTlsServer({ key, cert } as { key: Buffer; cert: Buffer });
  untrusted.on('tlsClientError', () => undefined);
  silent = createServer((socket) => socket.on('error', () => undefined));
  for (const server of [untrusted, silent]) await listen(server);
  const [redis, mongo] = await Promise.all([
    startRedis({ log: () => {} }),
    startMongo({ log: () => {} }),
  ]);
  own = { redis, mongo };
  const admin = new Redis(redis.url);
  await admin.call('ACL', 'SETUSER', 'poor', 'on', '>right', '-@all', '+info');
  admin.disconnect();
});
afterAll(async () => {
  for (const server of [untrusted, silent]) server.close();
  rmSync(folder, { recursive: true });
  await Promise.all([own.redis.stop(), own.mongo.stop()]);
});

const at = (server: Server): string => `127.0.0.1:${(server.address() as AddressInfo).port}`;

/** Returns the sentence about the server at this URL. */
const tellers = {
  mongodb: async (url: string): Promise<string> => {
    const times = { serverSelectionTimeoutMS: SHORT_MS, connectTimeoutMS: SHORT_MS };
    const client = createMongo(url, 'test', times);
    try {
      const error: unknown = await connectMongo(client, 10 * SHORT_MS)
        .then(() => client.db('x').collection('x').findOne({}))
        .catch((thrown: unknown) => thrown);
      return mongoFault(client, error).words;
    } finally {
      await client.close();
    }
  },
  redis: async (url: string): Promise<string> => {
    const warnings: Probe[] = [];
    const redis = createRedis(url, { commandTimeoutMs: SHORT_MS }, { log, warnings });
    try {
      return await eventually('a warning', async () => {
        if (redis.status === 'ready') await redis.get('a').catch(() => undefined);
        return (await allOf(warnings))[0]?.words;
      });
    } finally {
      redis.disconnect();
    }
  },
  smtp: async (url: string): Promise<string> => {
    const relay = relayOf(url, 'auto');
    const mailer = createMailer({
      relay,
      from: 'a@example.com',
      maxConnections: 1,
      limits: {
        connectMs: SHORT_MS,
        beforeContentMs: SHORT_MS,
        afterContentMs: HANG_MS,
        idleMs: 0,
      },
    });
    const outage = await mailer.probe();
    mailer.close();
    const server = { name: 'Relay', at: `${relay.host}:${relay.port}`, setting: 'SMTP_URL' };
    return contactFault(server, outage?.error).words;
  },
  kubernetes: async (url: string): Promise<string> => {
    const file = join(folder, 'kubeconfig');
    const named = (kind: string, value: string): string =>
      `${kind}s: [{ name: a, ${kind}: ${value} }]`;
    writeFileSync(
      file,
      [
        'current-context: a',
        named(
          'cluster',
          `{ server: "${url}", insecure-skip-tls-verify: ${url.startsWith('http:')} }`,
        ),
        named('user', '{ token: a }'),
        named('context', '{ cluster: a, user: a }'),
      ].join('\n'),
    );
    const kubernetes = new Kubernetes(file);
    const call = kubernetes.client(CoreV1Api, SHORT_MS).listNamespacedSecret({ namespace: 'a' });
    return kubernetes.faultOf(await call.catch((error: unknown) => error)).words;
  },
};

type Kind = keyof typeof tellers;
const urls: Readonly<Record<Kind, (at: string, tls: boolean) => string>> = {
  mongodb: (host, tls) => `mongodb://${host}/${tls ? '?tls=true' : ''}`,
  redis: (host, tls) => `redis${tls ? 's' : ''}://${host}`,
  smtp: (host, tls) => `smtp${tls ? 's' : ''}://${host}`,
  kubernetes: (host, tls) => `http${tls ? 's' : ''}://${host}`,
};

test.each(Object.keys(tellers) as Kind[])(
  '%s: a wrong address, a silent server and an untrusted certificate each have a sentence',
  async (kind) => {
    const tell = (host: string, tls = false): Promise<string> =>
      tellers[kind](urls[kind](host, tls));
    // Only the silent server may use the whole time-out.
    const tellInTime = (...server: Parameters<typeof tell>): Promise<string> =>
      eventually('an answer', async () => {
        const told = await tell(...server);
        return !told.includes('no answer in time') && told;
      });
    expect(await tellInTime('127.0.0.1:4999')).toMatch(
      /at 127\.0\.0\.1:4999: the connection is refused \(ECONNREFUSED\); check/,
    );
    expect(await tellInTime('nowhere.invalid:4999')).toMatch(
      /at nowhere\.invalid:4999: the name is not found \((ENOTFOUND|EAI_AGAIN)\); check the host/,
    );
    expect(await tell(at(silent))).toMatch(/: no answer in time/);
    expect(await tellInTime(at(untrusted), true)).toMatch(
      /: its certificate is not trusted( \(\w+\))?; give its CA in NODE_EXTRA_CA_CERTS/,
    );
  },
);

test('a wrong password and a missing right at Redis are reported with its error', async () => {
  const redis = new URL(own.redis.url).host;
  expect(await tellers.redis(`redis://poor:wrong@${redis}`)).toBe(
    `Redis at ${redis}: it refuses the login (WRONGPASS); check user and password in REDIS_URL`,
  );
  expect(await tellers.redis(`redis://poor:right@${redis}`)).toMatch(
    /we lack a right \(NOPERM\); check user and rights in REDIS_URL/,
  );
});

/** What a server sends first, where nothing is said yet, and then to each piece of data. */
type Answers = (said: string) => Buffer | string;
const unasked =
  (answer: Buffer | string): Answers =>
  (said) =>
    said === '' ? '' : answer;
const tlsAlert = (number: number) => unasked(Buffer.from([0x15, 3, 3, 0, 2, 2, number]));
const http = (status: string) => unasked(`HTTP/1.1 ${status}\r\nContent-Length: 0\r\n\r\n`);
/** A Redis that greets and then refuses each command. */
const refusing =
  (words: string): Answers =>
  (said) =>
    said
      .split(/^\*/m)
      .slice(1)
      .map((command) => (command.includes('info') ? '$9\r\nloading:0\r\n' : `-${words}\r\n`))
      .join('');
/** A relay that answers so to its client's first words, then to MAIL. */
const relaying =
  (greeting: string, toMail = ''): Answers =>
  (said) =>
    `${said === '' ? greeting : said.startsWith('MAIL') ? toMail : '250 fine'}\r\n`;

const PLAIN = false;
const TLS = true;
test.each<[Kind, tls: boolean, Answers, sentence: string]>([
  ['mongodb', TLS, tlsAlert(80), 'it ends TLS (alert 80); check that it lets our address in'],
  ['smtp', TLS, tlsAlert(40), 'it takes none of our TLS versions and ciphers (alert 40)'],
  ['redis', TLS, tlsAlert(116), 'it wants a certificate of ours (alert 116)'],
  ['smtp', TLS, relaying('220 plain'), 'TLS cannot be agreed on'],
  ['smtp', PLAIN, relaying('421 4.7.0 Busy'), 'it answers with an error (421); check its log'],
  [
    'smtp',
    PLAIN,
    relaying('220 hello', '550 5.7.1 not you'),
    'it refuses our sender (550); check MAIL_FROM, and what it lets our user send',
  ],
  [
    'kubernetes',
    PLAIN,
    http('401 Unauthorized'),
    'it refuses the login (401); check whether the token of KUBECONFIG or of the service account has ended',
  ],
  [
    'kubernetes',
    PLAIN,
    http('403 Forbidden'),
    'we lack a right (403); check the Role and RoleBinding',
  ],
  [
    'redis',
    PLAIN,
    refusing('MOVED 1 10.0.0.1:6379'),
    'it is one server of a Cluster (MOVED); write redis+cluster:// in REDIS_URL',
  ],
  [
    'redis',
    PLAIN,
    refusing('MISCONF Errors writing to the AOF file'),
    'it cannot save to its disk and takes no writes (MISCONF)',
  ],
  ['redis', PLAIN, refusing('OOM no'), 'its memory is full, and it takes no writes (OOM)'],
  [
    'redis',
    PLAIN,
    refusing("ERR unknown command 'get', with args beginning with: 'a'"),
    'it lacks a command that we need (unknown command)',
  ],
  ['redis', PLAIN, refusing('WHAT'), 'it answers with an error; check its log, and REDIS_URL'],
])('%s (TLS: %s) that answers an error has a sentence with the cause', async (...row) => {
  const [kind, tls, answer, sentence] = row;
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.write(answer(''));
    socket.on('data', (said) => void socket.write(answer(String(said))));
  });
  await listen(server);
  try {
    expect(await tellers[kind](urls[kind](at(server), tls))).toContain(`: ${sentence}`);
  } finally {
    server.close();
  }
});

test('a package that our image lacks, and what the DNS says of a mongodb+srv name, are told apart', async () => {
  const mongo = new URL(own.mongo.url.replace('mongodb:', 'http:')).host;
  expect(
    await tellers.mongodb(`mongodb://a@${mongo}/?authMechanism=GSSAPI&directConnection=true`),
  ).toMatch(
    /: our image lacks a package \(kerberos\); remove the option that needs it from MONGODB_URI/,
  );
  const host = { name: 'one.good.mongo.test', port: 1 };
  const nameServer = await startDnsServer({
    srv: {
      '_mongodb._tcp.foreign.mongo.test': [{ name: 'one.elsewhere.example', port: 1 }],
      '_mongodb._tcp.good.mongo.test': [host],
    },
    txt: { 'good.mongo.test': 'replicaSet=rs0&tls=false' },
  });
  const servers = getServers();
  try {
    setServers([nameServer.address]);
    for (const name of ['foreign', 'good'])
      expect(await tellers.mongodb(`mongodb+srv://${name}.mongo.test`)).toBe(
        `MongoDB at ${name}.mongo.test: the SRV or TXT record of its name cannot be used; correct it in DNS, or the host in MONGODB_URI`,
      );
    expect(await tellers.mongodb('mongodb+srv://nobody.mongo.test')).toMatch(
      /: the name is not found \(ENOTFOUND\)/,
    );
  } finally {
    await nameServer.close();
    // No member of the set listens any more.
    expect(await tellers.mongodb('mongodb+srv://good.mongo.test')).toMatch(
      /: the name is not found \(ECONNREFUSED\); check the host in MONGODB_URI, and DNS/,
    );
    setServers(servers);
  }
});

test('a replica set without a primary is reported as such', async () => {
  const set = await startReplicaSet(own.mongo.url);
  try {
    const { url } = await set.door();
    await set.stepDown(async () => {
      expect(await tellers.mongodb(url)).toMatch(
        /^MongoDB at 127\.0\.0\.1:\d+.*: no member of the replica set is the primary; check the replica set, and MONGODB_URI$/,
      );
    });
    expect(await tellers.mongodb(url)).not.toContain('primary');
  } finally {
    await set.close();
  }
});

test('mongodb+srv finds a set, and lets in who knows its CA, a user and a password', async () => {
  const names = ['one', 'two', 'three'].map((name) => `${name}.mongo.test`);
  const login = { username: 'service', password: 'p@ss:w/rd%1' };
  makeCertificate(folder, ['IP:127.0.0.1', ...names.map((name) => `DNS:${name}`)]);
  const [key, cert] = ['key.pem', 'ca.pem'].map((file) => readFileSync(join(folder, file)));
  const set = await startReplicaSet(own.mongo.url, { login });
  const { ports } = await set.door({ certificate: { key: key!, cert: cert! } });
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
    REDIS_URL: `redis://poor:wrong@${new URL(own.redis.url).host}`,
    SMTP_URL: `smtps://${at(untrusted)}`,
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
  const set = await startReplicaSet(own.mongo.url, { login: { username: 'a', password: 'b' } });
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
  const MONGODB_URI = `mongodb://jane:geheim@${at(untrusted)}/?tls=true`;
  const { code, stderr } = await spawnCli({ MONGODB_URI }, 'find', '--state', 'completed');
  expect({ code, stderr }).toEqual({
    code: 3,
    stderr: expect.stringContaining(`MongoDB at ${at(untrusted)}: its certificate is not trusted`),
  });
  expect(stderr).not.toContain('geheim');
});
