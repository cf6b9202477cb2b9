/** Checks settings that depend on each other. */
import { hasPublishedSecret } from '../partner/published-secrets.ts';
import { mongoLink, redisExposed } from '../platform/store-security.ts';

interface Related {
  readonly MONGODB_URI?: string;
  readonly REDIS_URL?: string;
  readonly ALLOW_INSECURE_STORES?: boolean;
  readonly PARTNER_KEYS_SOURCE?: unknown;
  readonly WATCH_NAMESPACES?: string | undefined;
  readonly LINK_SECRET?: string;
  readonly ALLOW_PUBLISHED_SECRETS?: boolean;
}

export function relationFaults(config: Related): string[] {
  return [...storeFaults(config), ...namespaceFaults(config), ...linkSecretFaults(config)];
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
