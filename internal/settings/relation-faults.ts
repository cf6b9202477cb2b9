/** Checks settings that depend on each other. */
import { hasPublishedSecret } from '../partner/published-secrets.ts';
import { isLoopback } from '../platform/loopback.ts';
import { mongoLink, redisExposed } from '../platform/store-security.ts';

interface Related {
  readonly MONGODB_URI?: string;
  readonly REDIS_URL?: string;
  readonly ALLOW_INSECURE_STORES?: boolean;
  readonly PARTNER_KEYS_SOURCE?: unknown;
  readonly WATCH_NAMESPACES?: string | undefined;
  readonly LINK_SECRET?: string;
  readonly ALLOW_PUBLISHED_SECRETS?: boolean;
  readonly CONSOLE_HOST?: string;
  readonly OIDC_ISSUER?: string | undefined;
}

export function relationFaults(config: Related): string[] {
  return [
    ...storeFaults(config),
    ...namespaceFaults(config),
    ...linkSecretFaults(config),
    ...consoleFaults(config),
  ];
}

const WITH_OIDC = [
  'OIDC_CLIENT_ID',
  'OIDC_CLIENT_SECRET',
  'CONSOLE_URL',
  'CONSOLE_SESSION_SECRET',
] as const;

/** The console never starts open. */
function consoleFaults(config: Related): string[] {
  const { CONSOLE_HOST: host, OIDC_ISSUER: issuer } = config;
  if (host === undefined) return [];
  const given: Readonly<Record<string, unknown>> = { ...config };
  if (issuer !== undefined) {
    return WITH_OIDC.filter((name) => given[name] === undefined).map(
      (name) => `${name}: is required with OIDC_ISSUER`,
    );
  }
  if (isLoopback(host)) return [];
  return ['CONSOLE_HOST: is not loopback, so OIDC_ISSUER is required: nobody else asks who looks'];
}

/** Personal data pass between this process and the stores. */
function storeFaults({
  MONGODB_URI: mongodb,
  REDIS_URL: redis,
  ALLOW_INSECURE_STORES: allowed,
}: Related): string[] {
  if (allowed === true) return [];
  const otherwise =
    'or set ALLOW_INSECURE_STORES=true where others can neither read nor change the traffic';
  return [
    ...(mongodb !== undefined && mongoLink(mongodb).exposed
      ? [`MONGODB_URI: is not encrypted: add tls=true, ${otherwise}`]
      : []),
    ...(redis !== undefined && redisExposed(redis)
      ? [`REDIS_URL: is not encrypted: use rediss:// in place of redis://, ${otherwise}`]
      : []),
  ];
}

function linkSecretFaults({
  LINK_SECRET: secret,
  ALLOW_PUBLISHED_SECRETS: allowed,
}: Related): string[] {
  if (secret === undefined || allowed === true || !hasPublishedSecret(secret)) return [];
  return [
    'LINK_SECRET: is the published one of the evaluation: make one with "openssl rand -hex 32"',
  ];
}

function namespaceFaults(config: Related): string[] {
  const isMissing = 'WATCH_NAMESPACES' in config && config.WATCH_NAMESPACES === undefined;
  if (config.PARTNER_KEYS_SOURCE !== 'kubernetes' || !isMissing) return [];
  return ['WATCH_NAMESPACES: is required with PARTNER_KEYS_SOURCE=kubernetes'];
}
