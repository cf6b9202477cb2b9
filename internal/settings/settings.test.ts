/** A configuration reports all faults at once, without silent defaults or secrets. */
import { expect, test } from '@jest/globals';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { ConfigError, tracedAs } from '../platform/process/config.ts';
import { loadConfig, printableConfig, type ProcessName } from './settings.ts';
import { addresses } from '../../test/support/email-addresses.ts';
import { folderOfFile } from '../../test/support/folder.ts';
import { read } from '../../test/support/pages.ts';

const PUBLISHED = 'evaluation only, not a secret for production';
const stores = { MONGODB_URI: 'mongodb://db:27017/?tls=true', REDIS_URL: 'rediss://cache:6379' };
const processor = {
  ...stores,
  SMTP_URL: 'smtp://user:hunter2-password@relay:587',
  MAIL_FROM: 'accounts@partner.example',
  LOGIN_URL: 'https://login.partner.example/',
  LINK_SECRET: '0a9b1c8d2e7f3a6b4c5d9e8f7a6b5c4d',
};

function faultsOf(load: () => unknown): readonly string[] {
  try {
    load();
  } catch (error) {
    if (error instanceof ConfigError) return error.faults;
    throw error;
  }
  throw new Error('expected the configuration to be refused');
}

test('all faults are reported together by name, and a misspelt number is one', () => {
  const faults = faultsOf(() =>
    loadConfig('ingest', {
      MONGODB_URI: 'postgres://db',
      HTTP_PORT: '80a',
      RATE_LIMIT_MAX: '0',
      TRUSTED_PROXIES: '10.0.0.0/8, everyone',
    }),
  );
  expect(faults.map((fault) => fault.split(':')[0])).toEqual([
    'MONGODB_URI',
    'REDIS_URL',
    'HTTP_PORT',
    'TRUSTED_PROXIES',
    'RATE_LIMIT_MAX',
  ]);
  for (const port of [' 5', '-1', '1.5', '1e3', '0x10', '65536'])
    expect(faultsOf(() => loadConfig('ingest', { ...stores, HTTP_PORT: port }))).toHaveLength(1);
  expect(loadConfig('ingest', { ...stores, HTTP_PORT: '' }).HTTP_PORT).toBe(8080);
});

test('the Kubernetes source needs one namespace; a folder needs none', () => {
  const controller = (more: object) => () => loadConfig('controller', { ...stores, ...more });
  expect(faultsOf(controller({}))).toEqual([
    'WATCH_NAMESPACES: is required with PARTNER_KEYS_SOURCE=kubernetes',
  ]);
  for (const wrong of ['keys-a,keys-b', 'Not_One', '../x']) {
    expect(faultsOf(controller({ WATCH_NAMESPACES: wrong }))).toEqual([
      'WATCH_NAMESPACES: must be the name of one namespace',
    ]);
  }
  expect(controller({ WATCH_NAMESPACES: ' keys ' })().WATCH_NAMESPACES).toBe('keys');
  expect(controller({ PARTNER_KEYS_SOURCE: 'directory:/keys' })).not.toThrow();
});

const accepted = { ...processor, WATCH_NAMESPACES: 'keys' };
type Refused = readonly [process: ProcessName, name: string, value: string];
const refused = Object.entries(
  parse(read('test/support/refused-settings.yaml')) as Readonly<Record<string, Refused[]>>,
).flatMap(([message, all]) => all.map((one) => [...one, message] as const));

test.each(refused)('%s refuses to start with %s=%s', (process, name, value, message) => {
  expect(loadConfig(process, accepted)).toBeDefined();
  expect(faultsOf(() => loadConfig(process, { ...accepted, [name]: value }))).toEqual([
    `${name}: ${message}`,
  ]);
});

test.each<[process: ProcessName, environment: Record<string, string>]>([
  ['ingest', { MONGODB_URI: 'mongodb://localhost,127.0.0.9:27018,[::1]:1/?replicaSet=rs' }],
  ['ingest', { MONGODB_URI: 'mongodb://%2Ftmp%2Fmongodb-27017.sock' }],
  ['ingest', { MONGODB_URI: 'mongodb+srv://cluster.example/?retryWrites=true' }],
  ['ingest', { MONGODB_URI: 'mongodb://a,b/?ssl=true&tlsInsecure=false' }],
  ['ingest', { REDIS_URL: 'redis+cluster://127.0.0.1:1,LOCALHOST' }],
  ['ingest', { REDIS_URL: 'rediss+sentinel://a,b?name=c' }],
  ['controller', { MONGODB_URI: 'mongodb://db', ALLOW_INSECURE_STORES: 'true' }],
  ['processor', { LOGIN_URL: 'http://[::1]/?a=1', NODE_TLS_REJECT_UNAUTHORIZED: '1' }],
  ['processor', { LINK_SECRET: PUBLISHED, ALLOW_PUBLISHED_SECRETS: 'true' }],
])('%s starts with %j', (process, environment) => {
  expect(loadConfig(process, { ...accepted, ...environment })).toMatchObject(
    Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== 'true')),
  );
});

test('a process checks only its own settings', () => {
  expect(faultsOf(() => loadConfig('processor', stores))).toHaveLength(4);
  expect(Object.keys(loadConfig('ingest', { ...processor, SMTP_URL: 'nonsense' }))).not.toContain(
    'SMTP_URL',
  );
});

test('the level of logs may be written in capitals; an unknown one is logged, and the default counts', () => {
  const found = { ignored: [] as string[], files: {} };
  const levelOf = (LOG_LEVEL: string) =>
    loadConfig('ingest', { ...stores, LOG_LEVEL }, found).LOG_LEVEL;
  expect([levelOf('WARN'), found.ignored]).toEqual(['warn', []]);
  expect(levelOf('loud')).toBe('info');
  expect(found.ignored).toEqual([expect.stringMatching(/^LOG_LEVEL: /)]);
});

test.each<[name: string | undefined, environment: Record<string, string>]>([
  [undefined, { OTEL_SERVICE_NAME: 'any', OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
  ['partner-ingest-ingest', { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://collector/v1/traces' }],
  ['any', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318', OTEL_SERVICE_NAME: 'any' }],
])('traces come from %j with %j', (name, environment) => {
  expect(tracedAs('ingest', environment)).toBe(name);
});

const folder = folderOfFile();

test('a secret comes from a file, with one trailing newline taken off', () => {
  const file = join(folder, 'uri');
  writeFileSync(file, 'mongodb://localhost/from-file\n');
  const environment = { ...stores, MONGODB_URI: undefined, MONGODB_URI_FILE: file };
  expect(loadConfig('ingest', environment).MONGODB_URI).toBe('mongodb://localhost/from-file');
  expect(faultsOf(() => loadConfig('ingest', { ...stores, MONGODB_URI_FILE: file }))).toEqual([
    'MONGODB_URI: is set twice, as MONGODB_URI and as MONGODB_URI_FILE',
  ]);
  expect(
    faultsOf(() => loadConfig('ingest', { ...environment, MONGODB_URI_FILE: `${file}-not` }))[0],
  ).toMatch(/^MONGODB_URI_FILE: cannot be read \(ENOENT\)/);
});

test.each(['MAIL_FROM_NAME', 'SMTP_TLS'])('%s with two lines is refused', (name) => {
  const load = () => loadConfig('processor', { ...processor, [name]: 'Acme\nBcc: x@y.example' });
  expect(faultsOf(load)).toEqual([expect.stringMatching(`^${name}: `)]);
});

test('no message and no start-up line holds a secret', () => {
  const faults = faultsOf(() =>
    loadConfig('processor', { ...processor, LINK_SECRET: 'short-canary', SMTP_URL: 'canary' }),
  );
  expect(faults).toHaveLength(2);
  expect(faults.join('\n')).not.toContain('canary');
  const printed = JSON.stringify(printableConfig(loadConfig('processor', processor)));
  expect(printed).toContain('"SMTP_URL":true');
  expect(printed).not.toMatch(/hunter2|xxxx|cache:6379/);
});

test.each(addresses)('the sender address %j is accepted: %s', (address, right) => {
  const load = () => loadConfig('processor', { ...processor, MAIL_FROM: address });
  if (right) expect(load().MAIL_FROM).toBe(address);
  else expect(faultsOf(load)).toEqual(['MAIL_FROM: must be an e-mail address']);
});

test.each([
  ['mail.partner.example', true],
  ['[IPv6:2001:db8::1]', true],
  ['mail', false],
  ['mail.partner.example\r\nMAIL FROM:<a@b.example>', false],
])('the relay is greeted as %j: %s', (name, right) => {
  const load = () => loadConfig('processor', { ...processor, MAIL_CLIENT_NAME: name });
  if (right) expect(load().MAIL_CLIENT_NAME).toBe(name);
  else
    expect(faultsOf(load)).toEqual([
      expect.stringMatching(/^MAIL_CLIENT_NAME: must be a fully qualified host name/),
    ]);
});
