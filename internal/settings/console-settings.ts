/** Settings of the console: where it listens, whom it lets in, and whose metrics it reads. */
import { z } from 'zod';
import { secret, setting, type Setting } from '../platform/process/config.ts';
import { flag, listOf, nonEmpty, port, securePage } from '../platform/config-rules.ts';

/** Must be an origin, because our own paths are appended. */
const isOrigin = (value: string): boolean => URL.parse(value)?.origin === value.replace(/\/$/, '');

const origins = listOf((entry) =>
  isOrigin(entry) && entry.startsWith('http://')
    ? undefined
    : `"${entry}" is not like http://host:9090`,
);

export const consoleSettings = {
  CONSOLE_HOST: setting(
    ['console'],
    nonEmpty.default('127.0.0.1'),
    'Address of the console. Any but loopback needs `OIDC_ISSUER`.',
  ),
  CONSOLE_PORT: setting(['console'], port.default(8081), 'Port of the console.'),
  CONSOLE_URL: setting(
    ['console'],
    securePage.refine(isOrigin, 'must have no path').optional(),
    'Where people open it. Needed with `OIDC_ISSUER`.',
  ),
  CONSOLE_NAME: setting(
    ['console'],
    nonEmpty.optional(),
    'Name on each page. Unset: `MONGODB_DATABASE`.',
  ),
  CONSOLE_COMMAND: setting(
    ['console'],
    nonEmpty.default('partner-ingest'),
    "How the pages show the operator's command.",
  ),
  CONSOLE_RUNBOOKS_URL: setting(
    ['console'],
    securePage.optional(),
    'Where docs/runbooks is served: what is wrong on the first page leads there.',
  ),
  CONSOLE_PROCESSES: setting(
    ['console', 'cli'],
    origins.default([]),
    'Admin addresses of the processes, such as http://ingest:9090, with commas.',
  ),
  CONSOLE_ACTIONS: setting(
    ['console'],
    flag.default(false),
    'Whether operators may act here. Needs `OIDC_ISSUER`, and rights (docs/stores.md).',
  ),
  CONSOLE_SESSION_SECRET: secret(
    ['console'],
    z.string().min(32, 'must have 32 characters or more').optional(),
    'Key of the session cookies.',
  ),
  OIDC_ISSUER: setting(
    ['console'],
    securePage.optional(),
    'OpenID provider that people log in at.',
  ),
  OIDC_CLIENT_ID: setting(
    ['console'],
    nonEmpty.optional(),
    "The console's client at the provider.",
  ),
  OIDC_CLIENT_SECRET: secret(['console'], nonEmpty.optional(), 'Secret of that client.'),
  OIDC_SCOPES: setting(
    ['console'],
    z
      .string()
      .refine((value) => value.split(' ').includes('openid'), 'must have the scope openid')
      .default('openid profile email'),
    'Scopes asked for; often one more for roles.',
  ),
  OIDC_ROLES_CLAIM: setting(
    ['console'],
    nonEmpty.default('roles'),
    'Claim with the roles; also a path such as `realm_access.roles`.',
  ),
  OIDC_NAME_CLAIM: setting(
    ['console'],
    nonEmpty.default('email'),
    'Claim that names a person; `email` only with `email_verified`. Else `sub`.',
  ),
  OIDC_VIEWER_ROLE: setting(
    ['console'],
    nonEmpty.default('viewer'),
    'Role that may look; personal data is masked.',
  ),
  OIDC_SUPPORT_ROLE: setting(
    ['console'],
    nonEmpty.default('support'),
    'Role that may also reveal personal data.',
  ),
  OIDC_OPERATOR_ROLE: setting(
    ['console'],
    nonEmpty.default('operator'),
    'Role that may also act, with `CONSOLE_ACTIONS`.',
  ),
  HTTPS_PROXY: setting(
    ['console'],
    nonEmpty.optional(),
    'Proxy to an https provider. Unset: `HTTP_PROXY`.',
    { secret: true, anyCase: true },
  ),
  HTTP_PROXY: setting(['console'], nonEmpty.optional(), 'Proxy to the provider.', {
    secret: true,
    anyCase: true,
  }),
  NO_PROXY: setting(
    ['console'],
    nonEmpty.optional(),
    'Hosts without a proxy, with commas: names, addresses, CIDR ranges, or `*`.',
    { anyCase: true },
  ),
} as const satisfies Record<string, Setting<'console' | 'cli'>>;
