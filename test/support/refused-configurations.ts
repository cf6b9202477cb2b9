/** Configurations that no process starts with, and the messages. */
import type { ProcessName } from '../../internal/settings/settings.ts';

export const ACCEPTED = {
  MONGODB_URI: 'mongodb://db/?tls=true',
  REDIS_URL: 'rediss://cache',
  SMTP_URL: 'smtp://user:password@relay',
  MAIL_FROM: 'accounts@partner.example',
  LOGIN_URL: 'https://login.partner.example/',
  LINK_SECRET: '0a9b1c8d2e7f3a6b4c5d9e8f7a6b5c4d',
  WATCH_NAMESPACES: 'keys',
};

interface Refused {
  readonly process: ProcessName;
  readonly name: string;
  /** Each value is refused with the same message. */
  readonly values: readonly string[];
  readonly message: string;
}

const WHERE =
  'or set ALLOW_INSECURE_STORES=true where others can neither read nor change the traffic';
const UNVERIFIED =
  "switches the check of the server's certificate off: remove tlsInsecure, tlsAllowInvalidCertificates and " +
  'tlsAllowInvalidHostnames; NODE_EXTRA_CA_CERTS adds a CA';

export const refusedConfigurations: readonly Refused[] = [
  {
    process: 'ingest',
    name: 'MONGODB_URI',
    values: ['mongodb://db', 'mongodb://db/?tls=false'],
    message: `is not encrypted: add tls=true, ${WHERE}`,
  },
  {
    process: 'cli',
    name: 'MONGODB_URI',
    values: [
      'mongodb://db/?tls=true&tlsInsecure=true',
      'mongodb://127.0.0.1/?tls=true&tlsallowinvalidcertificates=true',
    ],
    message: UNVERIFIED,
  },
  {
    process: 'processor',
    name: 'MONGODB_URI',
    values: ['mongodb://user:canary:@db', 'mongodb://db/?tls=true&ssl=false'],
    message:
      'is no connection string for the driver: percent-encode user and password, and look for misspelt options',
  },
  ...(
    [
      ['processor', 'SMTP_URL', ['smtp://user:pa/ss@relay:587', 'smtp://user:12?34@relay']],
      ['ingest', 'REDIS_URL', ['rediss://:pa/ss@cache', 'rediss://user:1@2@cache']],
    ] as const
  ).map(([process, name, values]) => ({
    process,
    name,
    values,
    message:
      'has a character in its user or password that must be percent-encoded: / as %2F, ? as %3F, # as %23, @ as %40',
  })),
  {
    process: 'controller',
    name: 'REDIS_URL',
    values: ['redis://cache', 'redis+sentinel://127.0.0.1,cache?name=main'],
    message: `is not encrypted: use rediss:// in place of redis://, ${WHERE}`,
  },
  {
    process: 'controller',
    name: 'REDIS_URL',
    values: ['rediss://cache?rejectUnauthorized=false'],
    message: 'has a parameter that single does not know',
  },
  {
    process: 'processor',
    name: 'LOGIN_URL',
    values: ['http://login.partner.example/', 'http://127.0.0.1.example/'],
    message:
      'must be a URL that starts with https://, or with http:// on loopback: its links let people in',
  },
  {
    process: 'ingest',
    name: 'NODE_TLS_REJECT_UNAUTHORIZED',
    values: ['0'],
    message: 'switches the check of all certificates off: NODE_EXTRA_CA_CERTS adds a CA',
  },
  {
    process: 'processor',
    name: 'LINK_SECRET',
    values: ['evaluation only, not a secret for production'],
    message: 'is the published one of the evaluation: make one with "openssl rand -hex 32"',
  },
  {
    process: 'processor',
    name: 'LINK_SECRET',
    values: ['0a9b1c8d2e7f3a6b', 'key-x:0a9b1c8d2e7f3a6b4c5d9e8f7a'],
    message: 'must have at least 32 characters, each secret for itself',
  },
  {
    process: 'processor',
    name: 'LINK_SECRET',
    values: ['a'.repeat(32), `key-x:${'0a9b1c8d'.repeat(4)},key-y:${'a'.repeat(32)}`],
    message: 'can be guessed: make one with "openssl rand -hex 32"',
  },
];
