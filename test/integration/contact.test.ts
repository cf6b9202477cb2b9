/** A store that cannot be used is named with what was tried, who named it, and why. */
import { getServers, setServers } from 'node:dns';
import { writeFileSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { CoreV1Api } from '@kubernetes/client-node';
import { afterEach, expect, test } from '@jest/globals';
import type { Document } from 'mongodb';
import { pino } from 'pino';
import { parse } from 'yaml';
import { createMailer, relayOf } from '../../internal/mail/mailer.ts';
import { Contact } from '../../internal/platform/process/contact-failure.ts';
import { Kubernetes } from '../../internal/platform/process/kubernetes.ts';
import { describeError, type Logger } from '../../internal/platform/process/log.ts';
import { allOf, type Probe } from '../../internal/platform/process/fault.ts';
import { saidBy } from '../../internal/platform/process/server-words.ts';
import { makeFirstContact } from '../../internal/platform/stores/mongo-indexes.ts';
import { createMongo } from '../../internal/platform/stores/mongo.ts';
import { createRedis } from '../../internal/platform/stores/redis.ts';
import { certificateIn, makeCertificate } from '../support/certificate.ts';
import { startDnsServer } from '../support/dns-server.ts';
import {
  array,
  bulk,
  fakeServer,
  mongoThat,
  redisThat,
  type FakeServer,
} from '../support/fake-stores.ts';
import { folderOfFile } from '../support/folder.ts';
import { read } from '../support/pages.ts';
import { HANG_MS, eventually } from '../support/wait.ts';

const SHORT_MS = 500;
const PASSWORD = 'geheim-1';
const [folder, foreign] = [folderOfFile(), folderOfFile()];
makeCertificate(folder, ['DNS:redis.example', 'DNS:*.cache.example']);
makeCertificate(foreign);
const certificates = { own: certificateIn(folder), foreign: certificateIn(foreign) };

const open: FakeServer[] = [];
afterEach(() => {
  for (const server of open.splice(0)) server.close();
});

/** What `/readyz` and the log tell in the end. */
interface Told {
  readonly code: string;
  readonly words: string;
  readonly log: string;
}

function logged(): { readonly log: Logger; readonly lines: () => string } {
  let text = '';
  const to = new Writable({
    write(chunk, _, done) {
      text += String(chunk);
      done();
    },
  });
  return { log: pino({ serializers: { err: describeError } }, to), lines: () => text };
}

async function toldBy(probes: readonly Probe[], lines: () => string, code: string): Promise<Told> {
  let last: unknown;
  try {
    return await eventually(
      code,
      async () => {
        const faults = await allOf(probes);
        const fault = faults.find((one) => one.code === code);
        last = faults;
        return fault !== undefined && { code, words: fault.words, log: lines() };
      },
      8_000,
    );
  } catch {
    throw new Error(`not ${code}, but ${JSON.stringify(last)} with ${lines()}`);
  }
}

async function ofMongo(uri: string, code: string): Promise<Told> {
  const { log, lines } = logged();
  const client = createMongo(uri, 'test', {
    serverSelectionTimeoutMS: SHORT_MS,
    connectTimeoutMS: SHORT_MS,
  });
  const indexes = [{ collection: 'a', name: 'b', key: { b: 1 } }] as const;
  const contact = makeFirstContact(client.db('x'), indexes, log);
  try {
    return await toldBy([contact.faults], lines, code);
  } finally {
    contact.stop();
    await client.close();
  }
}

async function ofRedis(url: string, code: string): Promise<Told> {
  const { log, lines } = logged();
  const warnings: Probe[] = [];
  const use = { commandTimeoutMs: SHORT_MS };
  const redis = createRedis(url, use, {
    log,
    warnings,
    redisTls: { ca: certificates.own.cert.toString() },
  });
  const asking = setInterval(() => void redis.set('a', 'b').catch(() => undefined), 50);
  try {
    return await toldBy(warnings, lines, code);
  } finally {
    clearInterval(asking);
    redis.disconnect();
  }
}

async function ofSmtp(url: string, code: string): Promise<Told> {
  const { log, lines } = logged();
  const relay = relayOf(url, 'auto');
  const at = `${relay.host}:${relay.port}`;
  const limits = {
    connectMs: SHORT_MS,
    beforeContentMs: 2 * SHORT_MS,
    afterContentMs: HANG_MS,
    idleMs: 0,
  };
  const mailer = createMailer({ relay, from: 'a@example.com', maxConnections: 1, limits });
  const contact = new Contact({ ...PLACE_OF_RELAY, at, tls: relay.secure }, log);
  const outage = await mailer.probe();
  mailer.close();
  contact.failed(outage?.error);
  return toldBy([contact.warnings], lines, code);
}

/** `at`, or `at` through `proxy`. */
async function ofKubernetes(server: string, code: string): Promise<Told> {
  const [url = '', proxy] = server.split(' through ');
  const file = join(folder, 'kubeconfig');
  const named = (kind: string, value: object): string =>
    `${kind}s: [${JSON.stringify({ name: 'a', [kind]: value })}]`;
  const cluster = { server: url, 'insecure-skip-tls-verify': url.startsWith('http:') };
  const lines = [
    'current-context: a',
    named('cluster', { ...cluster, ...(proxy === undefined ? {} : { 'proxy-url': proxy }) }),
    named('user', { token: PASSWORD }),
    named('context', { cluster: 'a', user: 'a' }),
  ];
  writeFileSync(file, lines.join('\n'));
  const kubernetes = new Kubernetes(file);
  const api = kubernetes.client(CoreV1Api, 4 * SHORT_MS);
  const thrown = await api
    .listNamespacedSecret({ namespace: 'a' })
    .catch((error: unknown) => error);
  const { code: found, words } = kubernetes.faultOf(thrown);
  expect(found).toBe(code);
  return { code, words, log: JSON.stringify({ said: saidBy(thrown), words }) };
}

const PLACE_OF_RELAY = { name: 'Relay', setting: 'SMTP_URL', speaks: 'a mail server' };
const tellers = { mongodb: ofMongo, redis: ofRedis, smtp: ofSmtp, kubernetes: ofKubernetes };

/** A server as contact.yaml describes it; without a description it is silent. */
interface Played {
  /** What `hello` answers besides the usual: of a member of a set, or alone. */
  readonly mongodb?: Document;
  /** Code, name and message of its errors, and the one command that gets them. */
  readonly says?: readonly [number, string, string, string?];
  /** The error of its commands, or null. */
  readonly redis?: string | null;
  readonly info?: Readonly<Record<string, string>>;
  /** Other answers than these. */
  readonly commands?: Readonly<Record<string, string>>;
  /** The primary that it names, or null. */
  readonly sentinel?: string | null;
  readonly names?: readonly string[];
  readonly greets?: string;
  /** Answers so to MAIL. */
  readonly relay?: string;
  /** Status and reason; the body quotes a person. */
  readonly http?: string;
  readonly tls?: 'own' | 'foreign';
  /** Ends TLS with this. */
  readonly alert?: number;
}

const member = (setName: string, me: string) => ({ setName, setVersion: 1, me });
function helloOf({ primary, calls_itself, secondary, beside = [], ...more }: Document, at: string) {
  const me = (calls_itself as string | undefined) ?? at;
  const leads = { ismaster: true, isWritablePrimary: true };
  if (primary) return { ...member(primary as string, me), ...leads, primary: me, hosts: [me] };
  const hosts = [me, ...(beside as string[])];
  if (secondary) return { ...member(secondary as string, me), secondary: true, hosts };
  return { ...leads, ...more };
}

function playMongo({ mongodb = {}, says }: Played) {
  const [code, codeName, errmsg, only] = says ?? [];
  return mongoThat(
    (me) => helloOf(mongodb, me),
    (command) =>
      says === undefined || (only !== undefined && !(only in command))
        ? { ok: 1 }
        : { ok: 0, code, codeName, errmsg },
  );
}

function playRedis({ redis: words, info = {}, commands = {} }: Played) {
  const isForAll = /^(?:NOAUTH|WRONGPASS|DENIED|ERR max)/.test(words ?? '');
  const facts = { redis_version: '7.4.0', redis_mode: 'standalone', loading: '0', ...info };
  const told = Object.entries(facts).map(([name, value]) => `${name}:${value}\r\n`);
  return redisThat((command, [what = '']) => {
    const other = commands[/slots/i.test(what) ? `${command} slots` : command];
    if (other !== undefined) return other;
    if (command === 'info' && !isForAll) return bulk(told.join(''));
    const isTaken = (words ?? '') === '' || (!isForAll && ['hello', 'client'].includes(command));
    return isTaken ? undefined : `-${words}\r\n`;
  });
}

const playSentinel = ({ sentinel = null, names = [] }: Played) =>
  redisThat((command, [what = '']) => {
    if (command !== 'sentinel') return undefined;
    if (/masters/i.test(what))
      return array(...names.map((name) => array(bulk('name'), bulk(name), bulk('ip'), bulk('x'))));
    if (/sentinels/i.test(what)) return array();
    const [host = '', port = ''] = sentinel?.split(/:(?=\d+$)/) ?? [];
    return sentinel === null ? '*-1\r\n' : array(bulk(host), bulk(port));
  });

function playOther({ greets, relay, http, alert }: Played) {
  const body = JSON.stringify({ kind: 'Status', message: 'User "x@y.z" cannot list' });
  const head = `Content-Type: application/json\r\nContent-Length: ${body.length}`;
  const reply = (said: string): string | Buffer | undefined => {
    if (alert !== undefined) return Buffer.from([0x15, 3, 3, 0, 2, 2, alert]);
    if (http !== undefined) return `HTTP/1.1 ${http}\r\n${head}\r\n\r\n${body}`;
    if (relay !== undefined) return `${said.startsWith('MAIL') ? relay : '250 hello'}\r\n`;
    return undefined;
  };
  return (socket: Socket): void => {
    const greeting = greets ?? (relay && '220 relay.example');
    if (greeting !== undefined) socket.write(`${greeting}\r\n`);
    socket.on('data', (said) => {
      const answer = reply(String(said));
      if (answer !== undefined) socket.write(answer);
    });
  };
}

async function start(played: Played): Promise<string> {
  const play =
    'mongodb' in played
      ? playMongo
      : 'redis' in played
        ? playRedis
        : 'sentinel' in played
          ? playSentinel
          : playOther;
  const server = await fakeServer(play(played), played.tls && certificates[played.tls]);
  open.push(server);
  return server.at;
}

interface Row {
  readonly what: string;
  readonly at?: Played;
  readonly second?: Played;
  readonly url: string;
  readonly code: string;
  readonly words: string;
  readonly said?: string;
}
const table = parse(read('test/integration/contact.yaml')) as Record<keyof typeof tellers, Row[]>;
const rows = Object.entries(table).flatMap(([of, all]) =>
  all.map((row) => ({ ...row, of: of as keyof typeof tellers })),
);

test.each(rows)('$of: $what', async ({ of, at, second, url, code, words, said }) => {
  const M = second === undefined ? '' : await start(second);
  const N = at === undefined ? '' : await start(at.sentinel === 'M' ? { ...at, sentinel: M } : at);
  const filled = (text: string): string =>
    text.replaceAll(/\bN\b/g, N).replaceAll(/\bM\b/g, M).replaceAll('PASSWORD', PASSWORD);
  const told = await tellers[of](filled(url).replace('FOLDER', folder), code);
  expect(told.words).toMatch(new RegExp(filled(words)));
  if (said === undefined) return;
  expect(told.log).toContain(JSON.stringify(told.words));
  expect(told.log).toContain('"said":"');
  expect(told.log).toContain(JSON.stringify(said).slice(1, -1));
  expect(told.log).not.toContain(PASSWORD);
  expect(told.log).not.toContain('x@y.z');
});

test('what the DNS says of a mongodb+srv name is told apart', async () => {
  const host = { name: 'one.good.mongo.test', port: 1 };
  const nameServer = await startDnsServer({
    srv: {
      '_mongodb._tcp.foreign.mongo.test': [{ name: 'one.elsewhere.example', port: 1 }],
      '_mongodb._tcp.good.mongo.test': [host],
    },
    txt: { 'good.mongo.test': 'replicaSet=rs0&tls=false' },
  });
  const servers = getServers();
  const tell = async (name: string, code: string): Promise<string> =>
    (await tellers.mongodb(`mongodb+srv://${name}.mongo.test`, code)).words;
  try {
    setServers([nameServer.address]);
    for (const name of ['foreign', 'good'])
      expect(await tell(name, 'name_record')).toBe(
        `MongoDB at ${name}.mongo.test: the SRV or TXT record of its name cannot be used; correct it in DNS, or the host in MONGODB_URI`,
      );
    expect(await tell('nobody', 'name_not_found')).toContain('is not found (ENOTFOUND)');
  } finally {
    await nameServer.close();
    // No server of names answers.
    expect(await tell('good', 'name_not_found')).toMatch(
      /: the name is not found \(ECONNREFUSED\); check the host in MONGODB_URI, and DNS/,
    );
    setServers(servers);
  }
});
