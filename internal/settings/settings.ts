/** Every setting: its rule, its default, and which processes use it. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { resolve } from 'node:path';
import { z } from 'zod';
import { isClientName, isEmailAddress } from '../application/fields.ts';
import { linkSecretFault } from '../mail/message.ts';
import { consoleSettings } from './console-settings.ts';
import type { KeysOf } from '../installation/installation.ts';
import { hasPublishedSecret } from '../partner/api-key.ts';
import { isLoopback, noProxyFault, proxyFault } from '../platform/http/networks.ts';
import {
  certificate,
  cidrList,
  days,
  DNS_LABEL,
  flag,
  listOf,
  mongodbUri,
  nonEmpty,
  oneLine,
  port,
  privateKey,
  redisUrl,
  securePage,
  unless,
  url,
  wholeNumber,
} from '../platform/config-rules.ts';
import {
  type Environment,
  type FoundBeside,
  load,
  secret,
  setting,
  type Setting,
} from '../platform/process/config.ts';
import { defined } from '../platform/process/defined.ts';
import { LOG_FORMATS } from '../platform/process/log.ts';
import { mongoLink } from '../platform/stores/mongo.ts';
import { redisExposed } from '../platform/stores/redis-url.ts';
import { signingFault } from '../receipt/receipt.ts';
import type { RetentionDays } from '../submission/states.ts';

export type ProcessName = 'ingest' | 'processor' | 'controller' | 'console' | 'cli';

const workers = ['ingest', 'processor', 'controller'] as const;
const services = [...workers, 'console'] as const;
const every = [...services, 'cli'] as const;
/** They end requests. */
const enders = ['processor', 'console', 'cli'] as const;

const BOUNCE_SECRETS_MAX = 5;

const email = z.string().refine(isEmailAddress, 'must be an e-mail address');
const clientName = z
  .string()
  .refine(
    isClientName,
    'must be a fully qualified host name, or an address literal such as [192.0.2.1]',
  );

export const settings = {
  MONGODB_URI: secret(
    every,
    mongodbUri,
    'MongoDB connection string, with TLS except on loopback and Unix sockets.',
  ),
  MONGODB_DATABASE: setting(every, nonEmpty.default('partner_ingest'), 'Database name.'),
  REDIS_URL: secret(
    workers,
    redisUrl,
    'Redis: one server, Sentinel or Cluster (docs/stores.md). `rediss`, except on loopback.',
  ),
  REDIS_TLS_CERT: secret(workers, certificate.optional(), 'Our certificate for Redis, in PEM.'),
  REDIS_TLS_KEY: secret(workers, privateKey.optional(), 'Its private key, in PEM.'),
  REDIS_TLS_CA: secret(
    workers,
    certificate.optional(),
    "Authority of Redis' certificate, in PEM. Unset: the public ones and `NODE_EXTRA_CA_CERTS`.",
  ),
  ALLOW_INSECURE_STORES: setting(
    every,
    flag.default(false),
    'Whether stores elsewhere may lack TLS, for an evaluation.',
  ),
  NODE_TLS_REJECT_UNAUTHORIZED: setting(
    every,
    z
      .string()
      .refine(
        (value) => value !== '0',
        'switches the check of all certificates off: NODE_EXTRA_CA_CERTS adds a CA',
      )
      .optional(),
    "Node's switch; refused when it is `0`.",
  ),
  HTTP_HOST: setting(
    ['ingest', 'processor'],
    nonEmpty.default('::'),
    'Address for partners and for late bounces.',
  ),
  HTTP_PORT: setting(['ingest'], port.default(8080), 'Port for partners.'),
  // Common proxies reuse connections for 60 s; ours must not close first.
  HTTP_KEEP_ALIVE_SECONDS: setting(
    ['ingest'],
    wholeNumber(1, 3_600).default(75),
    'Seconds an idle connection is kept; more than at the proxy.',
  ),
  ADMIN_HOST: setting(
    services,
    nonEmpty.default('::'),
    'Address of `/livez`, `/readyz` and `/metrics`.',
  ),
  ADMIN_PORT: setting(services, port.default(9090), 'Port of the admin server.'),
  TRUSTED_PROXIES: setting(
    ['ingest'],
    cidrList.default([]),
    'CIDR ranges of proxies that may name the client, with commas.',
  ),
  CLIENT_ADDRESS_HEADER: setting(
    ['ingest'],
    z.enum(['X-Forwarded-For', 'Forwarded']).default('X-Forwarded-For'),
    'Where your proxies name the client: this or `Forwarded`.',
  ),
  RATE_LIMIT_MAX: setting(
    ['ingest'],
    wholeNumber(1, 1_000_000_000).default(300),
    'Requests of one address in a window.',
  ),
  RATE_LIMIT_WINDOW_SECONDS: setting(
    ['ingest'],
    wholeNumber(1, 3_600).default(60),
    'Seconds of that window.',
  ),
  // This is well below the 30 s after which reconcile may queue a record (docs/decisions/0004).
  ACCEPT_TIMEOUT_MS: setting(
    ['ingest'],
    wholeNumber(50, 10_000).default(2_000),
    'Milliseconds until a request that is not durable gets 500.',
  ),
  STATUS_ENDPOINT: setting(
    ['ingest'],
    flag.default(true),
    'Whether partners may look up their requests.',
  ),
  OPENAPI_ENDPOINT: setting(
    ['ingest'],
    flag.default(true),
    'Whether partners may read the OpenAPI document.',
  ),
  RECEIPT_KEYS: secret(
    ['ingest'],
    unless(signingFault).optional(),
    'Keys that sign receipts (`partner-ingest receipt keys`). Unset: none.',
  ),
  SHUTDOWN_DELAY_MS: setting(
    ['ingest'],
    wholeNumber(0, 120_000).default(0),
    'Milliseconds between SIGTERM and closing. 0 with a preStop sleep.',
  ),
  PARTNER_KEYS_SOURCE: setting(
    ['controller'],
    z
      .string()
      .regex(/^(kubernetes|directory:.+)$/, 'must be "kubernetes" or "directory:PATH"')
      .default('kubernetes')
      .transform((source) =>
        source === 'kubernetes' ? source : { directory: source.replace('directory:', '') },
      ),
    'Where partner Secrets are: `kubernetes`, or `directory:PATH` with manifests.',
  ),
  WATCH_NAMESPACES: setting(
    ['controller', 'processor', 'cli'],
    z.string().trim().regex(DNS_LABEL, 'must be the name of one namespace').optional(),
    'The namespace of partner Secrets, required with `PARTNER_KEYS_SOURCE=kubernetes`.',
  ),
  WATCH_PARTNERS: setting(
    ['controller', 'cli'],
    flag.default(false),
    'Whether `Partner` resources of that namespace count. A folder may always hold some.',
  ),
  POD_NAME: setting(
    ['controller'],
    nonEmpty.default('controller'),
    "The pod's name, in lease and Events.",
  ),
  ALLOW_PUBLISHED_SECRETS: setting(
    ['processor', 'controller'],
    flag.default(false),
    'Whether the published API key and `LINK_SECRET` count, for an evaluation.',
  ),
  PROBE_KEY: secret(['controller'], z.string().optional(), 'Test key of the probe.'),
  PROBE_URL: setting(
    ['controller'],
    url(['http', 'https'])
      .default('http://127.0.0.1:8080/api/v1')
      .transform((base) => base.replace(/\/$/, '')),
    'Where the probe submits: best where partners do.',
    { lenient: true },
  ),
  PROBE_MAIL_TO: setting(
    ['processor', 'controller'],
    email.optional(),
    'Address for e-mails of the probe. Unset: none.',
  ),
  KUBECONFIG: setting(
    ['controller'],
    nonEmpty.optional(),
    'Path of a kubeconfig. Unset: the service account.',
  ),
  SMTP_URL: secret(
    ['processor'],
    url(['smtp', 'smtps']),
    'Mail relay: `smtp://host:587` or `smtps://host:465`, with `user:password@` (percent-encoded).',
  ),
  SMTP_TLS: setting(
    ['processor'],
    z.enum(['auto', 'required', 'opportunistic', 'none']).default('auto'),
    'STARTTLS with `smtp://`: `required`, `opportunistic`, `none`; `auto` requires it for a password to another machine.',
  ),
  MAIL_FROM: setting(['processor'], email, 'Sender address.'),
  MAIL_CLIENT_NAME: setting(
    ['processor'],
    clientName.optional(),
    "Name that greets the relay. Unset: the machine's full name, else the domain of `MAIL_FROM`.",
  ),
  MAIL_FROM_NAME: setting(['processor'], oneLine(100).default(''), 'Name of the sender.'),
  MAIL_SUPPORT_CONTACT: setting(
    ['processor'],
    oneLine(200).optional(),
    'Where applicants ask for help.',
  ),
  MAIL_PER_SECOND: setting(
    ['processor'],
    wholeNumber(0, 10_000).default(0),
    'Most e-mails of all processors in a second. 0: no limit.',
  ),
  MAIL_CONNECTIONS: setting(
    ['processor'],
    wholeNumber(0, 1_000).default(0),
    'E-mails that a process hands over at once. 0: `PROCESSOR_CONCURRENCY`.',
  ),
  MAIL_TEMPLATES: setting(
    ['processor'],
    z.string().default(''),
    'Folder with templates (docs/email.md). Empty: ours.',
  ),
  TEST_MAIL_TO: setting(
    ['processor'],
    email.optional(),
    'Where e-mails of tests go. Unset: nowhere.',
  ),
  LOGIN_URL: setting(
    ['processor'],
    securePage,
    'Login page of the activation link (docs/login.md), https except on loopback.',
  ),
  LINK_SECRET: secret(
    ['processor'],
    unless(linkSecretFault),
    'Key of the activation tokens, the same in every processor; to rotate it, two (docs/login.md).',
  ),
  BOUNCE_SECRETS: secret(
    ['processor'],
    listOf(linkSecretFault)
      .refine(
        ({ length }) => length >= 1 && length <= BOUNCE_SECRETS_MAX,
        `must be 1 to ${BOUNCE_SECRETS_MAX} secrets, with commas`,
      )
      .optional(),
    'What signs reports of late bounces (docs/email.md), with commas. Unset: no port.',
  ),
  BOUNCES_PORT: setting(['processor'], port.default(8081), 'Port for reports of late bounces.'),
  PROCESSOR_CONCURRENCY: setting(
    ['processor'],
    wholeNumber(1, 1_000).default(16),
    'Applications that a process works on at once.',
  ),
  PROCESSOR_REPLICAS: setting(
    ['processor'],
    wholeNumber(1, 1_000).default(1),
    'How many processors run at most: without Redis, each sends `MAIL_PER_SECOND` divided by it.',
  ),
  RETENTION_COMPLETED_DAYS: setting(enders, days.default(400), 'Days a completed request is kept.'),
  RETENTION_REJECTED_DAYS: setting(enders, days.default(90), 'Days a rejected request is kept.'),
  RETENTION_UNDELIVERABLE_DAYS: setting(
    enders,
    days.default(400),
    'Days an undeliverable request is kept.',
  ),
  RETENTION_CLOSED_DAYS: setting(enders, days.default(400), 'Days a closed request is kept.'),
  RETENTION_MALFORMED_DAYS: setting(
    ['ingest'],
    days.default(7),
    'Days a request answered 400 or 408 is kept.',
  ),
  RETENTION_REFUSED_DAYS: setting(
    ['ingest'],
    days.default(7),
    'Days a request answered 401, 403 or 429 is kept, or its count.',
  ),
  RETENTION_WITHDRAWN_DAYS: setting(
    ['ingest'],
    days.default(7),
    'Days a withdrawn request is kept.',
  ),
  RETENTION_BODY_DAYS: setting(
    enders,
    days.default(30),
    'Days the body is kept after the end of a request.',
  ),
  ERASURE_REGISTER: setting(
    enders,
    nonEmpty.optional(),
    'Folder that notes erasures (docs/privacy.md).',
  ),
  ERASURE_REGISTER_KEY: secret(
    enders,
    z.string().min(32, 'must have 32 characters or more').optional(),
    'Its key. Keep it as long as the register.',
  ),
  ...consoleSettings,
  LOG_LEVEL: setting(
    services,
    z
      .string()
      .toLowerCase()
      .pipe(z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']))
      .default('info'),
    'Least severe level that is logged.',
    { lenient: true },
  ),
  LOG_FORMAT: setting(
    services,
    z.string().toLowerCase().pipe(z.enum(LOG_FORMATS)).default('json'),
    'Names of the fields: ours (`json`), or as Google Cloud (`gcp`) or Elastic (`ecs`) reads them.',
    { lenient: true },
  ),
} as const satisfies Record<string, Setting<ProcessName>>;

export type SettingName = keyof typeof settings;
export type Config = {
  readonly [Name in SettingName]: z.output<(typeof settings)[Name]['schema']>;
};

export type ConfigOf<Process extends ProcessName> = Pick<
  Config,
  {
    [Name in SettingName]: Process extends (typeof settings)[Name]['usedBy'][number] ? Name : never;
  }[SettingName]
>;

/** Throws `ConfigError` with every fault; `found` is filled in. */
export function loadConfig<Process extends ProcessName>(
  process: Process,
  environment?: Environment,
  found?: FoundBeside,
): ConfigOf<Process> {
  const config = load(settings, {
    process,
    environment,
    found,
    relationFaults,
  });
  return config as ConfigOf<Process>;
}

/** Secrets show only as `true`. */
export function printableConfig(config: object): Record<string, unknown> {
  const table: Readonly<Record<string, Setting>> = settings;
  return Object.fromEntries(
    Object.entries(config).map(([name, value]) => [
      name,
      table[name]?.secret === true && value !== undefined ? true : value,
    ]),
  );
}

/** Who may write the keys; a folder is known by its path. */
export function keysOf(config: Pick<Config, 'PARTNER_KEYS_SOURCE' | 'WATCH_NAMESPACES'>): KeysOf {
  const { PARTNER_KEYS_SOURCE: from, WATCH_NAMESPACES: namespace } = config;
  return from === 'kubernetes'
    ? `namespace:${namespace ?? ''}`
    : `directory:${resolve(from.directory)}`;
}

export function redisOf(
  config: Pick<Config, 'REDIS_URL' | 'REDIS_TLS_CERT' | 'REDIS_TLS_KEY' | 'REDIS_TLS_CA'>,
) {
  const { REDIS_URL: server, REDIS_TLS_CERT: cert, REDIS_TLS_KEY: key, REDIS_TLS_CA: ca } = config;
  return { redisUrl: server, redisTls: defined({ cert, key, ca }) };
}

/* Checks settings that depend on each other. */

const OTHERWISE =
  'or set ALLOW_INSECURE_STORES=true where others can neither read nor change the traffic';
const WITH_OIDC = [
  'OIDC_CLIENT_ID',
  'OIDC_CLIENT_SECRET',
  'CONSOLE_URL',
  'CONSOLE_SESSION_SECRET',
] as const;

const isPair = (cert: string, key: string): boolean =>
  new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));

/** A setting that is invalid by itself is absent. */
function relationFaults(config: Partial<Config>): string[] {
  const { MONGODB_URI: mongodb, REDIS_URL: redis, LINK_SECRET: linkSecret } = config;
  const { REDIS_TLS_CERT: cert, REDIS_TLS_KEY: key, CONSOLE_HOST: host } = config;
  const { HTTPS_PROXY: https, HTTP_PROXY: http, NO_PROXY: no } = config;
  const hasOidc = config.OIDC_ISSUER !== undefined;
  /** Only the console with OIDC uses a proxy; others may have one for other programs. */
  const ofProxy = (name: string, fault: string | undefined) =>
    [hasOidc && fault !== undefined, `${name}: ${fault}`] as const;
  const rules: readonly (readonly [isBroken: boolean | undefined, fault: string])[] = [
    [
      !config.ALLOW_INSECURE_STORES && mongodb !== undefined && mongoLink(mongodb).exposed,
      `MONGODB_URI: is not encrypted: add tls=true, ${OTHERWISE}`,
    ],
    [
      !config.ALLOW_INSECURE_STORES && redis !== undefined && redisExposed(redis),
      `REDIS_URL: is not encrypted: use rediss:// in place of redis://, ${OTHERWISE}`,
    ],
    [
      cert !== undefined && key !== undefined && !isPair(cert, key),
      'REDIS_TLS_KEY: is not the key of REDIS_TLS_CERT: were both renewed?',
    ],
    [
      (cert === undefined) !== (key === undefined),
      'REDIS_TLS_CERT: needs REDIS_TLS_KEY, and the other way round',
    ],
    [
      (cert ?? config.REDIS_TLS_CA) !== undefined && !redis?.startsWith('rediss'),
      'REDIS_URL: must begin with rediss where REDIS_TLS_CERT or REDIS_TLS_CA is set',
    ],
    [
      config.PARTNER_KEYS_SOURCE === 'kubernetes' &&
        'WATCH_NAMESPACES' in config &&
        config.WATCH_NAMESPACES === undefined,
      'WATCH_NAMESPACES: is required with PARTNER_KEYS_SOURCE=kubernetes',
    ],
    [
      !config.ALLOW_PUBLISHED_SECRETS && linkSecret !== undefined && hasPublishedSecret(linkSecret),
      'LINK_SECRET: is the published one of the evaluation: make one with "openssl rand -hex 32"',
    ],
    [
      config.ERASURE_REGISTER === undefined && config.ERASURE_REGISTER_KEY !== undefined,
      'ERASURE_REGISTER: is required with ERASURE_REGISTER_KEY',
    ],
    ...WITH_OIDC.map(
      (name) =>
        [hasOidc && config[name] === undefined, `${name}: is required with OIDC_ISSUER`] as const,
    ),
    [
      config.CONSOLE_ACTIONS && !hasOidc,
      'CONSOLE_ACTIONS: needs OIDC_ISSUER: nobody else says who acts',
    ],
    // Without log-in, the console serves loopback only.
    [
      !hasOidc && host !== undefined && !isLoopback(host),
      'CONSOLE_HOST: is not loopback, so OIDC_ISSUER is required: nobody else asks who looks',
    ],
    ofProxy('HTTPS_PROXY', https && proxyFault(https)),
    ofProxy('HTTP_PROXY', http && proxyFault(http)),
    ofProxy('NO_PROXY', no && noProxyFault(no)),
  ];
  return rules.filter(([isBroken]) => isBroken).map(([, fault]) => fault);
}

type Retention = Extract<SettingName, `RETENTION_${string}`> &
  keyof ConfigOf<'processor'> &
  keyof ConfigOf<'cli'>;

/** How long records and bodies are kept, for the processes that end requests. */
export function retentionOf(config: Pick<Config, Retention>): RetentionDays {
  return {
    completed: config.RETENTION_COMPLETED_DAYS,
    rejected: config.RETENTION_REJECTED_DAYS,
    undeliverable: config.RETENTION_UNDELIVERABLE_DAYS,
    closed: config.RETENTION_CLOSED_DAYS,
    body: config.RETENTION_BODY_DAYS,
  };
}
