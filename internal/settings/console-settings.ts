/** Settings of the console: where it listens, whom it lets in, and whose metrics it reads. */
import { z } from 'zod';
import type { Setting } from '../platform/process/config.ts';
import { flag, listOf, nonEmpty, port, securePage } from '../platform/config-rules.ts';

const usedBy = ['console'] as const;

/** Must be an origin, because our own paths are appended. */
const isOrigin = (value: string): boolean => URL.parse(value)?.origin === value.replace(/\/$/, '');

const origins = listOf((entry) =>
  isOrigin(entry) && entry.startsWith('http://')
    ? undefined
    : `"${entry}" is not like http://host:9090`,
);

export const consoleSettings = {
  CONSOLE_HOST: {
    schema: nonEmpty.default('127.0.0.1'),
    usedBy,
    about: 'Address of the console. Any but loopback needs `OIDC_ISSUER`.',
  },
  CONSOLE_PORT: {
    schema: port.default(8081),
    usedBy,
    about: 'Port of the console.',
  },
  CONSOLE_URL: {
    schema: securePage.refine(isOrigin, 'must have no path').optional(),
    usedBy,
    about: 'Where people open the console. Needed with `OIDC_ISSUER`.',
  },
  CONSOLE_NAME: {
    schema: nonEmpty.optional(),
    usedBy,
    about:
      'Name of this installation on each page, such as `payments, production`; its colour follows from it. By default `MONGODB_DATABASE`.',
  },
  CONSOLE_COMMAND: {
    schema: nonEmpty.default('partner-ingest'),
    usedBy,
    about:
      "How the pages show the operator's command, such as `kubectl exec -i deploy/partner-ingest-processor -- partner-ingest`.",
  },
  CONSOLE_PROCESSES: {
    schema: origins.default([]),
    usedBy,
    about:
      'Admin addresses of the other processes, such as http://ingest:9090, with commas; a name stands for all its addresses.',
  },
  CONSOLE_ACTIONS: {
    schema: flag.default(false),
    usedBy,
    about:
      'Whether operators may act in the console. Needs `OIDC_ISSUER`, and rights at MongoDB (docs/stores.md).',
  },
  CONSOLE_SESSION_SECRET: {
    schema: z.string().min(32, 'must have 32 characters or more').optional(),
    usedBy,
    secret: true,
    about: 'Key of the session cookies. Needed with `OIDC_ISSUER`; a new one logs everybody out.',
  },
  OIDC_ISSUER: {
    schema: securePage.optional(),
    usedBy,
    about: 'OpenID provider that people log in at.',
  },
  OIDC_CLIENT_ID: {
    schema: nonEmpty.optional(),
    usedBy,
    about: "The console's client at the provider.",
  },
  OIDC_CLIENT_SECRET: {
    schema: nonEmpty.optional(),
    usedBy,
    secret: true,
    about: 'Secret of that client.',
  },
  OIDC_SCOPES: {
    schema: z
      .string()
      .refine((value) => value.split(' ').includes('openid'), 'must have the scope openid')
      .default('openid profile email'),
    usedBy,
    about: 'Scopes asked for; for roles often one more, such as `groups`.',
  },
  OIDC_ROLES_CLAIM: {
    schema: nonEmpty.default('roles'),
    usedBy,
    about:
      'Claim of the ID token, else of UserInfo, that holds the roles; a path such as `realm_access.roles` works.',
  },
  OIDC_VIEWER_ROLE: {
    schema: nonEmpty.default('viewer'),
    usedBy,
    about: 'Role that may look; personal data is masked.',
  },
  OIDC_SUPPORT_ROLE: {
    schema: nonEmpty.default('support'),
    usedBy,
    about: 'Role that may also reveal personal data.',
  },
  OIDC_OPERATOR_ROLE: {
    schema: nonEmpty.default('operator'),
    usedBy,
    about: 'Role that may also act, with `CONSOLE_ACTIONS`.',
  },
} as const satisfies Record<string, Setting<'console'>>;
