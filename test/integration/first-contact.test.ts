/** Each usual fault with a server has one sentence in the log, in `/readyz` and on the terminal. */
import { createSocket } from 'node:dgram';
import { getServers, lookup, setServers } from 'node:dns';
import { once } from 'node:events';
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
import { allOf, type Probe } from '../../internal/platform/http/admin-server.ts';
import { contactReason } from '../../internal/platform/stores/contact-failure.ts';
import { Kubernetes } from '../../internal/platform/process/kubernetes.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { connectMongo, createMongo, mongoReason } from '../../internal/platform/stores/mongo.ts';
import { createRedis } from '../../internal/platform/stores/redis.ts';
import { makeCertificate } from '../support/certificate.ts';
import { spawnCli } from '../support/cli.ts';
import { startDnsServer } from '../support/dns-server.ts';
import { listen } from '../support/listen.ts';
import { startMailCatcher } from '../support/mail-catcher.ts';
import { submit } from '../support/processing.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

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
      return mongoReason(client, error);
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
        return (await allOf(warnings))[0];
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
    return contactReason(server, outage?.error);
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
    return kubernetes.reason(await call.catch((error: unknown) => error));
  },
};

const schemes = {
  mongodb: ['mongodb://', '/?tls=true', '/'],
  redis: ['rediss://', '', ''],
  smtp: ['smtps://', '', ''],
  kubernetes: ['https://', '', ''],
} as const;
const plain = { mongodb: 'mongodb://', redis: 'redis://', smtp: 'smtp://', kubernetes: 'https://' };

test.each(Object.keys(tellers) as (keyof typeof tellers)[])(
  '%s: a wrong address, a silent server and an untrusted certificate each have a sentence',
  async (kind) => {
    const [scheme, options, none] = schemes[kind];
    const tell = tellers[kind];
    // Only the silent server may use the whole time-out.
    const tellInTime = (url: string): Promise<string> =>
      eventually('an answer', async () => {
        const told = await tell(url);
        return !told.includes('no answer in time') && told;
      });
    expect(await tellInTime(`${plain[kind]}127.0.0.1:4999${none}`)).toMatch(
      /at 127\.0\.0\.1:4999: the connection is refused \(ECONNREFUSED\); check/,
    );
    expect(await tellInTime(`${plain[kind]}nowhere.invalid:4999${none}`)).toMatch(
      /at nowhere\.invalid:4999: the name is not found \((ENOTFOUND|EAI_AGAIN)\); check the host/,
    );
    expect(await tell(`${plain[kind]}${at(silent)}${none}`)).toMatch(/: no answer in time/);
    expect(await tellInTime(`${scheme}${at(untrusted)}${options}`)).toMatch(
      /: its certificate is not trusted( \(\w+\))?; give its CA in NODE_EXTRA_CA_CERTS/,
    );
  },
);

test('a wrong password and a missing right are reported with the error of the server', async () => {
  const redis = new URL(own.redis.url).host;
  expect(await tellers.redis(`redis://poor:wrong@${redis}`)).toBe(
    `Redis at ${redis}: it refuses the login (WRONGPASS); check user and password in REDIS_URL`,
  );
  expect(await tellers.redis(`redis://poor:right@${redis}`)).toMatch(
    /we lack a right \(NOPERM\); check user and rights in REDIS_URL/,
  );
  const mongo = new URL(own.mongo.url.replace('mongodb:', 'http:')).host;
  expect(await tellers.mongodb(`mongodb://jane:wrong@${mongo}/?directConnection=true`)).toMatch(
    /: it refuses the login \(18\); check user and password in MONGODB_URI/,
  );
});

test('a healthy Redis is no cause for a warning, whatever the library asks it', async () => {
  const warned: unknown[] = [];
  const telling = { ...log, warn: (...words: unknown[]) => warned.push(words), info: () => {} };
  const warnings: Probe[] = [];
  const redis = createRedis(
    world.stores.redisUrl,
    { commandTimeoutMs: SHORT_MS },
    { log: telling, warnings },
  );
  await once(redis, 'ready');
  // Redis answers in order: what the library sent at the connect is answered by then.
  expect(await redis.ping()).toBe('PONG');
  redis.disconnect();
  expect([warned, await allOf(warnings)]).toEqual([[], []]);
});

test('a relay that refuses at the greeting is told by its answer', async () => {
  const relay = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.end('421 4.7.0 Too many connections\r\n');
  });
  await listen(relay);
  expect(await tellers.smtp(`smtp://${at(relay)}`)).toMatch(
    /: it answers with an error \(421\); check its log/,
  );
  relay.close();
});

/** Sends an answer for each piece of data. */
async function startRaw(answer: (said: string) => Buffer | string): Promise<Server> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.on('data', (said) => void socket.write(answer(String(said))));
  });
  await listen(server);
  return server;
}
const tlsAlert = (number: number): Buffer => Buffer.from([0x15, 3, 3, 0, 2, 2, number]);
/** A Redis that greets and then refuses each command. */
const refusing = (words: string) => (said: string) =>
  said
    .split(/^\*/m)
    .slice(1)
    .map((command) => (command.includes('info') ? '$9\r\nloading:0\r\n' : `-${words}\r\n`))
    .join('');

test.each<[keyof typeof tellers, string, Parameters<typeof startRaw>[0], RegExp]>([
  [
    'mongodb',
    'mongodb://SERVER/?tls=true',
    () => tlsAlert(80),
    /: it ends TLS \(alert 80\); check that it lets our address in/,
  ],
  [
    'smtp',
    'smtps://SERVER',
    () => tlsAlert(40),
    /: it takes none of our TLS versions and ciphers \(alert 40\)/,
  ],
  [
    'redis',
    'rediss://SERVER',
    () => tlsAlert(116),
    /: it wants a certificate of ours \(alert 116\)/,
  ],
  [
    'smtp',
    'smtps://SERVER',
    () => '220 plain\r\n',
    /: TLS cannot be agreed on .*check the port and whether TLS is meant/,
  ],
  [
    'kubernetes',
    'http://SERVER',
    () => 'HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n',
    /: it refuses the login \(401\); check whether the token of KUBECONFIG or of the service account has ended/,
  ],
  [
    'kubernetes',
    'http://SERVER',
    () => 'HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n',
    /: we lack a right \(403\); check the Role and RoleBinding/,
  ],
  [
    'redis',
    'redis://SERVER',
    refusing('MOVED 1 10.0.0.1:6379'),
    /: it is one server of a Cluster \(MOVED\); write redis\+cluster:\/\/ in REDIS_URL/,
  ],
  [
    'redis',
    'redis://SERVER',
    refusing('MISCONF Errors writing to the AOF file'),
    /: it cannot save to its disk and takes no writes \(MISCONF\)/,
  ],
  [
    'redis',
    'redis://SERVER',
    refusing('OOM command not allowed'),
    /: its memory is full, and it takes no writes \(OOM\)/,
  ],
  [
    'redis',
    'redis://SERVER',
    refusing("ERR unknown command 'get', with args beginning with: 'a'"),
    /: it lacks a command that we need \(unknown command\)/,
  ],
  [
    'redis',
    'redis://SERVER',
    refusing('WHATEVER is said'),
    /: it answers with an error; check its log, and REDIS_URL/,
  ],
])(
  '%s at %s, which answers an error, has a sentence with the cause',
  async (kind, url, answer, sentence) => {
    const server = await startRaw(answer);
    try {
      expect(await tellers[kind](url.replace('SERVER', at(server)))).toMatch(sentence);
    } finally {
      server.close();
    }
  },
);

test('a relay that refuses our sender is told as one', async () => {
  const mail = await startMailCatcher();
  mail.setFault({ at: 'mail', answer: { code: 550, message: '5.7.1 not you' } });
  expect(await tellers.smtp(mail.smtpUrl)).toMatch(
    /: it refuses our sender \(550\); check MAIL_FROM, and what it lets our user send$/,
  );
  await mail.close();
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
    const mute = createSocket('udp4').bind(0, '127.0.0.1');
    await once(mute, 'listening');
    setServers([`127.0.0.1:${mute.address().port}`]);
    expect(await tellers.mongodb('mongodb+srv://good.mongo.test')).toMatch(
      /: the name is not found \(ETIMEOUT\)/,
    );
    mute.close();
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

test('without Redis and relay a process is ready, with the sentences of the log as warnings', async () => {
  const redis = new URL(own.redis.url).host;
  const settings = {
    ...world.environment,
    LOG_LEVEL: 'info',
    REDIS_URL: `redis://poor:wrong@${redis}`,
    SMTP_URL: `smtps://${at(untrusted)}`,
  };
  const services: ServiceProcess[] = [];
  try {
    for (const name of ['ingest', 'processor', 'controller'] as const) {
      const service = await startService(name, settings);
      services.push(service);
      await service.ready();
      const wanted = name === 'processor' ? 2 : 1;
      const told = await eventually(`warnings of ${name}`, async () => {
        const body = (await (await fetch(`${service.adminUrl}/readyz`)).json()) as {
          readonly ok: boolean;
          readonly warnings: readonly string[];
        };
        return body.ok && body.warnings.length >= wanted ? body.warnings : undefined;
      });
      await eventually('the same on the log', () =>
        told.every((warning) => service.lines.join('\n').includes(JSON.stringify(warning))),
      );
      expect(told.join()).toContain('(WRONGPASS)');
      expect(told.join().includes('its certificate is not trusted')).toBe(name === 'processor');
    }
  } finally {
    for (const service of services) await service.stop();
  }
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
        const body = (await (await fetch(`${service.adminUrl}/readyz`)).json()) as {
          readonly faults: readonly string[];
          readonly files: unknown;
        };
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
    services.push(...(await Promise.all(services.splice(0).map(({ name }) => run(name)))));
    await Promise.all(services.map((successor) => successor.ready()));
  } finally {
    for (const service of services) await service.stop();
    await set.close();
  }
});

test('ingest and processor report a Redis that refuses writes until it accepts them again', async () => {
  const admin = new Redis(own.redis.url);
  const settings = { REDIS_URL: own.redis.url };
  await admin.config('SET', 'min-replicas-to-write', '1');
  try {
    const [ingest, processor] = [
      await world.start('ingest', settings),
      await world.start('processor', settings),
    ];
    const warned = async (adminUrl: string): Promise<boolean> => {
      await submit(world, ingest, newApplication());
      const text = await (await fetch(`${adminUrl}/readyz`)).text();
      return text.includes(
        'too few of its replicas are there, and it takes no writes (NOREPLICAS)',
      );
    };
    for (const { adminUrl } of [ingest, processor])
      await eventually('the warning', () => warned(adminUrl));
    await admin.config('SET', 'min-replicas-to-write', '0');
    for (const { adminUrl } of [ingest, processor])
      await eventually('its end', async () => !(await warned(adminUrl)));
  } finally {
    admin.disconnect();
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
