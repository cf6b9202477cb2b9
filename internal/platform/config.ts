/** The one place that reads the environment: every setting, its rule, its default, and who needs it. */
/* oxlint-disable node/no-process-env -- this is the file that may */
import { z } from 'zod';
import { ConfigError } from './config-error.ts';
import {
  DNS_LABEL,
  cidrList,
  days,
  flag,
  mongodbUri,
  namespaceList,
  nonEmpty,
  port,
  url,
  wholeNumber,
} from './config-rules.ts';
import { UNREADABLE, rawValue, type Environment } from './config-value.ts';
import { otelSettings } from './otel-settings.ts';

export type ProcessName = 'ingest' | 'processor' | 'controller' | 'cli';

interface Setting {
  readonly schema: z.ZodType;
  readonly usedBy: readonly ProcessName[];
  readonly about: string;
  /** Never printed; may also come as `NAME_FILE`, the path of a mounted file. */
  readonly secret?: true;
}

const services = ['ingest', 'processor', 'controller'] as const;
const every = [...services, 'cli'] as const;

const settings = {
  MONGODB_URI: {
    schema: mongodbUri,
    usedBy: every,
    secret: true,
    about: 'MongoDB connection string. The record of truth lives there.',
  },
  MONGODB_DATABASE: { schema: nonEmpty.default('partner_ingest'), usedBy: every, about: 'Database name.' },
  REDIS_URL: {
    schema: url(['redis', 'rediss']),
    usedBy: services,
    secret: true,
    about: 'Redis for queue hints and the shared rate limit. Losing all of it loses no work.',
  },
  HTTP_HOST: { schema: nonEmpty.default('0.0.0.0'), usedBy: ['ingest'], about: 'Address partners are served on.' },
  HTTP_PORT: {
    schema: port.default(8080),
    usedBy: ['ingest'],
    about: 'Port partners are served on; 0 picks a free one.',
  },
  HTTP_KEEP_ALIVE_SECONDS: {
    // Above the 60 s that common proxies keep theirs, so that it is never us who closes under their request.
    schema: wholeNumber(1, 3_600).default(75),
    usedBy: ['ingest'],
    about: 'How long an idle connection is kept, in seconds. Must be longer than the proxy keeps it.',
  },
  ADMIN_HOST: {
    schema: nonEmpty.default('0.0.0.0'),
    usedBy: services,
    about: 'Address of `/livez`, `/readyz` and `/metrics`.',
  },
  ADMIN_PORT: { schema: port.default(9090), usedBy: services, about: 'Port of the admin server; 0 picks a free one.' },
  TRUSTED_PROXIES: {
    schema: cidrList.default([]),
    usedBy: ['ingest'],
    about: 'Comma-separated CIDR ranges whose `X-Forwarded-For` is believed. Empty: nobody is.',
  },
  RATE_LIMIT_MAX: {
    schema: wholeNumber(1, 1_000_000_000).default(300),
    usedBy: ['ingest'],
    about: 'Requests one client address may make in a window.',
  },
  RATE_LIMIT_WINDOW_SECONDS: {
    schema: wholeNumber(1, 3_600).default(60),
    usedBy: ['ingest'],
    about: 'Length of the rate-limit window in seconds.',
  },
  ACCEPT_TIMEOUT_MS: {
    // Well below the 30 s after which reconcile may hand a record to a worker (docs/decisions/0004).
    schema: wholeNumber(50, 10_000).default(2_000),
    usedBy: ['ingest'],
    about: 'How long a request may wait to become durable before it is answered 500, in milliseconds.',
  },
  STATUS_ENDPOINT: {
    schema: flag.default(false),
    usedBy: ['ingest'],
    about: 'Whether partners may look up the state of their own requests (`GET …/capital/ingest/{request_id}`).',
  },
  SHUTDOWN_DELAY_MS: {
    schema: wholeNumber(0, 120_000).default(0),
    usedBy: ['ingest'],
    about: 'Wait between SIGTERM and closing, in milliseconds. Keep 0 where a preStop sleep does this job.',
  },
  PARTNER_KEYS_SOURCE: {
    schema: z
      .string()
      .regex(/^(kubernetes|directory:.+)$/, 'must be "kubernetes" or "directory:PATH"')
      .default('kubernetes'),
    usedBy: ['controller'],
    about: 'Where partner Secrets are read: the Kubernetes API, or a folder of Secret manifests.',
  },
  WATCH_NAMESPACES: {
    schema: namespaceList.default([]),
    usedBy: ['controller'],
    about: 'Comma-separated namespaces that hold partner Secrets; required with `PARTNER_KEYS_SOURCE=kubernetes`.',
  },
  POD_NAMESPACE: {
    schema: z.string().regex(DNS_LABEL, 'must be the name of a namespace').optional(),
    usedBy: ['controller'],
    about: "The pod's namespace, where the Lease lives; required with `PARTNER_KEYS_SOURCE=kubernetes`.",
  },
  POD_NAME: {
    schema: nonEmpty.default('controller'),
    usedBy: ['controller'],
    about: "The pod's name: who holds the Lease and reports Events.",
  },
  LEASE_NAME: {
    schema: z
      .string()
      .regex(DNS_LABEL, 'must be a name of lower-case letters, digits and "-"')
      .default('partner-ingest-controller'),
    usedBy: ['controller'],
    about:
      'Name of the Lease that elects the leader. With `POD_NAMESPACE` it names whose keys are whose: never change it.',
  },
  KUBECONFIG: {
    schema: nonEmpty.optional(),
    usedBy: ['controller'],
    about: 'Path of a kubeconfig file. Unset, the controller uses the service account of its pod.',
  },
  SMTP_URL: {
    schema: url(['smtp', 'smtps']),
    usedBy: ['processor'],
    secret: true,
    about:
      'Mail relay: `smtp://host:587` or `smtps://host:465`, with `user:password@` (percent-encoded) where it wants them.',
  },
  SMTP_TLS: {
    schema: z.enum(['auto', 'required', 'opportunistic', 'none']).default('auto'),
    usedBy: ['processor'],
    about:
      'STARTTLS with `smtp://`: `required`, `opportunistic` (where offered) or `none`; `auto` requires it where a password would go to another machine. Certificates are always verified; `NODE_EXTRA_CA_CERTS` adds a CA.',
  },
  MAIL_FROM: {
    schema: z.email('must be an e-mail address'),
    usedBy: ['processor'],
    about: 'Sender address of the e-mail to the applicant.',
  },
  MAIL_FROM_NAME: {
    schema: z
      .string()
      .regex(/^[^\p{Cc}]{0,100}$/u, 'must be one line of at most 100 characters')
      .default(''),
    usedBy: ['processor'],
    about: 'Name shown with the sender address.',
  },
  MAIL_TEMPLATES: {
    schema: z.string().default(''),
    usedBy: ['processor'],
    about: 'Folder with templates of the e-mail (docs/email.md). Empty: those that come with the service.',
  },
  LOGIN_URL: {
    schema: url(['http', 'https']),
    usedBy: ['processor'],
    about: 'Login page the applicant is sent to; the activation link is this URL with `account` and `token` added.',
  },
  LINK_SECRET: {
    schema: z.string().min(32, 'must have at least 32 characters'),
    usedBy: ['processor'],
    secret: true,
    about: 'Key of the activation tokens (HMAC). The same in every processor; changing it voids links not yet used.',
  },
  PROCESSOR_CONCURRENCY: {
    schema: wholeNumber(1, 1_000).default(16),
    usedBy: ['processor'],
    about: 'Jobs of each queue worked on at the same time in one process.',
  },
  RETENTION_COMPLETED_DAYS: {
    schema: days.default(400),
    usedBy: ['processor', 'cli'],
    about: 'Days a completed request is kept.',
  },
  RETENTION_REJECTED_DAYS: {
    schema: days.default(90),
    usedBy: ['processor', 'cli'],
    about: 'Days a rejected request is kept.',
  },
  RETENTION_UNDELIVERABLE_DAYS: {
    schema: days.default(400),
    usedBy: ['processor', 'cli'],
    about: 'Days a request whose e-mail was refused for good is kept.',
  },
  RETENTION_MALFORMED_DAYS: {
    schema: days.default(30),
    usedBy: ['ingest'],
    about: 'Days a request answered 400 is kept.',
  },
  RETENTION_REFUSED_DAYS: {
    schema: days.default(7),
    usedBy: ['ingest'],
    about: 'Days a request answered 401 or 403, or counted over the limit, is kept.',
  },
  RETENTION_WITHDRAWN_DAYS: {
    schema: days.default(7),
    usedBy: ['ingest'],
    about: 'Days a request answered 500 while its write was in doubt is kept.',
  },
  ...otelSettings,
  LOG_LEVEL: {
    schema: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
    usedBy: services,
    about: 'Least severe level that is logged.',
  },
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof settings;
export type Config = { readonly [Name in SettingName]: z.output<(typeof settings)[Name]['schema']> };

/** What a program at a terminal may ask of its surroundings: https://no-color.org, and who is logged in. */
export function readTerminalEnvironment(environment: Environment = process.env): {
  readonly noColor: boolean;
  readonly user: string | undefined;
} {
  return { noColor: (environment['NO_COLOR'] ?? '') !== '', user: environment['USER'] };
}

/** What each process may read: the settings whose `usedBy` names it. */
export type ConfigOf<Process extends ProcessName> = Pick<
  Config,
  { [Name in SettingName]: Process extends (typeof settings)[Name]['usedBy'][number] ? Name : never }[SettingName]
>;

/** What no setting can check for itself: those that need one another. */
function relationFaults(config: Partial<Config>): string[] {
  if (config.PARTNER_KEYS_SOURCE !== 'kubernetes') return [];
  const missing = [
    ...(config.WATCH_NAMESPACES?.length === 0 ? ['WATCH_NAMESPACES'] : []),
    ...('POD_NAMESPACE' in config && config.POD_NAMESPACE === undefined ? ['POD_NAMESPACE'] : []),
  ];
  return missing.map((name) => `${name}: is required with PARTNER_KEYS_SOURCE=kubernetes`);
}

/** Every setting for the documentation and the chart: name, default, who uses it, what it is for. */
export function describeSettings(): {
  name: SettingName;
  default: string;
  usedBy: string;
  secret: boolean;
  about: string;
}[] {
  return Object.entries<Setting>(settings).map(([name, setting]) => {
    const whenUnset = setting.schema.safeParse(undefined);
    return {
      name: name as SettingName,
      default: whenUnset.success ? [whenUnset.data].flat().join(',') : 'required',
      usedBy: setting.usedBy.length === every.length ? 'all' : setting.usedBy.join(', '),
      secret: setting.secret === true,
      about: setting.about,
    };
  });
}

/**
 * Reads, checks and freezes the part of the environment that `process` uses.
 * An empty variable counts as unset. Throws `ConfigError` with every fault; no message holds a secret's value.
 */
export function loadConfig<Process extends ProcessName>(
  process: Process,
  environment: Environment = globalThis.process.env,
): ConfigOf<Process> {
  const faults: string[] = [];
  const config: Record<string, unknown> = {};
  for (const [name, setting] of Object.entries<Setting>(settings)) {
    if (!setting.usedBy.includes(process)) continue;
    const raw = rawValue(name, setting.secret === true, environment, faults);
    if (raw === UNREADABLE) continue;
    const parsed = setting.schema.safeParse(raw);
    if (parsed.success) config[name] = parsed.data;
    else if (raw === undefined) faults.push(`${name}: is required (${setting.about})`);
    else faults.push(...parsed.error.issues.map((issue) => `${name}: ${issue.message}`));
  }
  faults.push(...relationFaults(config));
  if (faults.length > 0) throw new ConfigError(process, faults);
  return Object.freeze(config) as ConfigOf<Process>;
}

/** The configuration for the start-up line: secrets only as `true`. */
export function printableConfig(config: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(config).map(([name, value]) => [
      name,
      (settings as Record<string, Setting>)[name]?.secret === true ? true : value,
    ]),
  );
}
