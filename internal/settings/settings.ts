/** Every setting: its rule, its default, and which processes use it. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { resolve } from 'node:path';
import { z } from 'zod';
import { isEmailAddress } from '../application/email-address.ts';
import { consoleSettings } from './console-settings.ts';
import { mailSettings } from './mail-settings.ts';
import type { KeysOf } from '../installation/installation.ts';
import { hasPublishedSecret } from '../partner/api-key.ts';
import { isLoopback } from '../platform/http/networks.ts';
import {
  certificate,
  cidrList,
  days,
  DNS_LABEL,
  flag,
  mongodbUri,
  nonEmpty,
  port,
  privateKey,
  redisUrl,
  url,
  wholeNumber,
} from '../platform/config-rules.ts';
import {
  type Environment,
  type FoundBeside,
  load,
  type Setting,
} from '../platform/process/config.ts';
import { defined } from '../platform/process/defined.ts';
import { mongoLink } from '../platform/stores/mongo.ts';
import { redisExposed } from '../platform/stores/redis-url.ts';
import type { RetentionDays } from '../submission/states.ts';

export type ProcessName = 'ingest' | 'processor' | 'controller' | 'console' | 'cli';

const workers = ['ingest', 'processor', 'controller'] as const;
const services = [...workers, 'console'] as const;
const every = [...services, 'cli'] as const;

export const settings = {
  MONGODB_URI: {
    schema: mongodbUri,
    usedBy: every,
    secret: true,
    about:
      'MongoDB connection string, with TLS except on loopback and Unix sockets; `mongodb+srv` has it.',
  },
  MONGODB_DATABASE: {
    schema: nonEmpty.default('partner_ingest'),
    usedBy: every,
    about: 'Database name.',
  },
  REDIS_URL: {
    schema: redisUrl,
    usedBy: workers,
    secret: true,
    about: 'Redis: one server, Sentinel or Cluster (docs/stores.md). `rediss`, except on loopback.',
  },
  REDIS_TLS_CERT: {
    schema: certificate.optional(),
    usedBy: workers,
    secret: true,
    about: 'Our certificate for Redis, in PEM.',
  },
  REDIS_TLS_KEY: {
    schema: privateKey.optional(),
    usedBy: workers,
    secret: true,
    about: 'Its private key, in PEM.',
  },
  REDIS_TLS_CA: {
    schema: certificate.optional(),
    usedBy: workers,
    secret: true,
    about:
      "The one authority of Redis' certificate, in PEM. Unset: the public ones and `NODE_EXTRA_CA_CERTS`.",
  },
  ALLOW_INSECURE_STORES: {
    schema: flag.default(false),
    usedBy: every,
    about: 'Whether stores elsewhere may be without TLS. Only for an evaluation.',
  },
  NODE_TLS_REJECT_UNAUTHORIZED: {
    schema: z
      .string()
      .refine(
        (value) => value !== '0',
        'switches the check of all certificates off: NODE_EXTRA_CA_CERTS adds a CA',
      )
      .optional(),
    usedBy: every,
    about: "Node's switch; refused when it is `0`.",
  },
  HTTP_HOST: {
    schema: nonEmpty.default('::'),
    usedBy: ['ingest'],
    about: 'Address for partners; `::` is every one.',
  },
  HTTP_PORT: {
    schema: port.default(8080),
    usedBy: ['ingest'],
    about: 'Port for partners.',
  },
  HTTP_KEEP_ALIVE_SECONDS: {
    // Common proxies reuse connections for 60 s; ours must not close first.
    schema: wholeNumber(1, 3_600).default(75),
    usedBy: ['ingest'],
    about: 'Seconds an idle connection is kept; more than by the proxy.',
  },
  ADMIN_HOST: {
    schema: nonEmpty.default('::'),
    usedBy: services,
    about: 'Address of `/livez`, `/readyz` and `/metrics`.',
  },
  ADMIN_PORT: {
    schema: port.default(9090),
    usedBy: services,
    about: 'Port of the admin server.',
  },
  TRUSTED_PROXIES: {
    schema: cidrList.default([]),
    usedBy: ['ingest'],
    about: 'CIDR ranges of proxies that may name the client, with commas.',
  },
  CLIENT_ADDRESS_HEADER: {
    schema: z.enum(['X-Forwarded-For', 'Forwarded']).default('X-Forwarded-For'),
    usedBy: ['ingest'],
    about: 'Where your proxies name the client: this or `Forwarded`. The other is ignored.',
  },
  RATE_LIMIT_MAX: {
    schema: wholeNumber(1, 1_000_000_000).default(300),
    usedBy: ['ingest'],
    about: 'Requests of one client address in a window.',
  },
  RATE_LIMIT_WINDOW_SECONDS: {
    schema: wholeNumber(1, 3_600).default(60),
    usedBy: ['ingest'],
    about: 'Seconds of that window.',
  },
  ACCEPT_TIMEOUT_MS: {
    // This is well below the 30 s after which reconcile may queue a record (docs/decisions/0004).
    schema: wholeNumber(50, 10_000).default(2_000),
    usedBy: ['ingest'],
    about: 'Milliseconds a request may wait to become durable; then 500.',
  },
  STATUS_ENDPOINT: {
    schema: flag.default(true),
    usedBy: ['ingest'],
    about: 'Whether partners may look up and list their own requests.',
  },
  OPENAPI_ENDPOINT: {
    schema: flag.default(true),
    usedBy: ['ingest'],
    about: 'Whether the partner port answers with the OpenAPI document.',
  },
  LOG_ACCEPTS: {
    schema: flag.default(false),
    usedBy: ['ingest'],
    about: 'Whether each recorded request is logged (docs/restore.md).',
  },
  SHUTDOWN_DELAY_MS: {
    schema: wholeNumber(0, 120_000).default(0),
    usedBy: ['ingest'],
    about: 'Milliseconds between SIGTERM and closing. Keep 0 with a preStop sleep.',
  },
  PARTNER_KEYS_SOURCE: {
    schema: z
      .string()
      .regex(/^(kubernetes|directory:.+)$/, 'must be "kubernetes" or "directory:PATH"')
      .default('kubernetes')
      .transform((source) =>
        source === 'kubernetes' ? source : { directory: source.replace('directory:', '') },
      ),
    usedBy: ['controller'],
    about: 'Where partner Secrets are: `kubernetes`, or `directory:PATH` with manifests.',
  },
  WATCH_NAMESPACES: {
    schema: z.string().trim().regex(DNS_LABEL, 'must be the name of one namespace').optional(),
    usedBy: ['controller', 'processor', 'cli'],
    about: 'The one namespace of partner Secrets, required with `PARTNER_KEYS_SOURCE=kubernetes`.',
  },
  POD_NAME: {
    schema: nonEmpty.default('controller'),
    usedBy: ['controller'],
    about: "The pod's name: who holds the lease and reports Events.",
  },
  ALLOW_PUBLISHED_SECRETS: {
    schema: flag.default(false),
    usedBy: ['processor', 'controller'],
    about: 'Whether the published API key and `LINK_SECRET` count. Only for an evaluation.',
  },
  PROBE_KEY: {
    schema: z.string().optional(),
    usedBy: ['controller'],
    secret: true,
    about: 'Test key of the submission that the leading controller sends each minute.',
  },
  PROBE_URL: {
    schema: url(['http', 'https'])
      .default('http://127.0.0.1:8080/api/v1')
      .transform((base) => base.replace(/\/$/, '')),
    usedBy: ['controller'],
    lenient: true,
    about: 'Where the probe submits, up to `/api/v1`: best where partners do.',
  },
  PROBE_MAIL_TO: {
    schema: z.string().refine(isEmailAddress, 'must be an e-mail address').optional(),
    usedBy: ['processor', 'controller'],
    about: 'Address of yours for one e-mail of the probe each ten minutes. Unset: none.',
  },
  KUBECONFIG: {
    schema: nonEmpty.optional(),
    usedBy: ['controller'],
    about: 'Path of a kubeconfig. Unset: the service account of the pod.',
  },
  ...mailSettings,
  PROCESSOR_CONCURRENCY: {
    schema: wholeNumber(1, 1_000).default(16),
    usedBy: ['processor'],
    about: 'Applications that one process works on at once.',
  },
  PROCESSOR_REPLICAS: {
    schema: wholeNumber(1, 1_000).default(1),
    usedBy: ['processor'],
    about:
      'Most processors at once; while Redis is away, each keeps its part of `MAIL_PER_SECOND`.',
  },
  RETENTION_COMPLETED_DAYS: {
    schema: days.default(400),
    usedBy: ['processor', 'console', 'cli'],
    about: 'Days a completed request is kept.',
  },
  RETENTION_REJECTED_DAYS: {
    schema: days.default(90),
    usedBy: ['processor', 'console', 'cli'],
    about: 'Days a rejected request is kept.',
  },
  RETENTION_UNDELIVERABLE_DAYS: {
    schema: days.default(400),
    usedBy: ['processor', 'console', 'cli'],
    about: 'Days an undeliverable request is kept.',
  },
  RETENTION_CLOSED_DAYS: {
    schema: days.default(400),
    usedBy: ['processor', 'console', 'cli'],
    about: 'Days a closed request is kept.',
  },
  RETENTION_MALFORMED_DAYS: {
    schema: days.default(7),
    usedBy: ['ingest'],
    about: 'Days a request answered 400 or 408 is kept, with its body.',
  },
  RETENTION_REFUSED_DAYS: {
    schema: days.default(7),
    usedBy: ['ingest'],
    about: 'Days a request answered 401, 403 or 429 is kept, or its count.',
  },
  RETENTION_WITHDRAWN_DAYS: {
    schema: days.default(7),
    usedBy: ['ingest'],
    about: 'Days a withdrawn request is kept.',
  },
  RETENTION_BODY_DAYS: {
    schema: days.default(30),
    usedBy: ['processor', 'console', 'cli'],
    about: 'Days the body is kept after the end of a request.',
  },
  ...consoleSettings,
  LOG_LEVEL: {
    schema: z
      .string()
      .toLowerCase()
      .pipe(z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']))
      .default('info'),
    usedBy: services,
    lenient: true,
    about: 'Least severe level that is logged.',
  },
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
  const config = load(settings, { process, relationFaults, environment, found });
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

/** A setting that is invalid by itself is absent. */
type Related = Readonly<Record<string, unknown>> & {
  readonly MONGODB_URI?: string;
  readonly REDIS_URL?: string;
  readonly REDIS_TLS_CERT?: string;
  readonly REDIS_TLS_KEY?: string;
  readonly LINK_SECRET?: string;
  readonly CONSOLE_HOST?: string;
};

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

export function relationFaults(config: Related): string[] {
  const {
    MONGODB_URI: mongodb,
    REDIS_URL: redis,
    REDIS_TLS_CERT: cert,
    REDIS_TLS_KEY: key,
    LINK_SECRET: secret,
    CONSOLE_HOST: host,
  } = config;
  const mayBeExposed = config['ALLOW_INSECURE_STORES'] === true;
  const mayBePublished = config['ALLOW_PUBLISHED_SECRETS'] === true;
  const isOfKubernetes = config['PARTNER_KEYS_SOURCE'] === 'kubernetes';
  const hasOidc = config['OIDC_ISSUER'] !== undefined;
  const rules: readonly (readonly [isBroken: boolean, fault: string])[] = [
    [
      !mayBeExposed && mongodb !== undefined && mongoLink(mongodb).exposed,
      `MONGODB_URI: is not encrypted: add tls=true, ${OTHERWISE}`,
    ],
    [
      !mayBeExposed && redis !== undefined && redisExposed(redis),
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
      (cert ?? config['REDIS_TLS_CA']) !== undefined && redis?.startsWith('rediss') !== true,
      'REDIS_URL: must begin with rediss where REDIS_TLS_CERT or REDIS_TLS_CA is set',
    ],
    [
      isOfKubernetes && 'WATCH_NAMESPACES' in config && config['WATCH_NAMESPACES'] === undefined,
      'WATCH_NAMESPACES: is required with PARTNER_KEYS_SOURCE=kubernetes',
    ],
    [
      !mayBePublished && secret !== undefined && hasPublishedSecret(secret),
      'LINK_SECRET: is the published one of the evaluation: make one with "openssl rand -hex 32"',
    ],
    ...WITH_OIDC.map(
      (name) =>
        [hasOidc && config[name] === undefined, `${name}: is required with OIDC_ISSUER`] as const,
    ),
    [
      config['CONSOLE_ACTIONS'] === true && !hasOidc,
      'CONSOLE_ACTIONS: needs OIDC_ISSUER: nobody else says who acts',
    ],
    // Without log-in, the console serves loopback only.
    [
      !hasOidc && host !== undefined && !isLoopback(host),
      'CONSOLE_HOST: is not loopback, so OIDC_ISSUER is required: nobody else asks who looks',
    ],
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
