/** Checks settings that depend on each other. */
import { hasPublishedSecret } from '../partner/published-secrets.ts';
import { mongoLink } from '../platform/mongo.ts';
import { isLoopback } from '../platform/networks.ts';
import { redisExposed } from '../platform/redis-url.ts';

/** Settings that are refused by themselves are absent. */
type Related = Readonly<Record<string, unknown>> & {
  readonly MONGODB_URI?: string;
  readonly REDIS_URL?: string;
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

export function relationFaults(config: Related): string[] {
  const {
    MONGODB_URI: mongodb,
    REDIS_URL: redis,
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
    // The console never starts open.
    [
      !hasOidc && host !== undefined && !isLoopback(host),
      'CONSOLE_HOST: is not loopback, so OIDC_ISSUER is required: nobody else asks who looks',
    ],
  ];
  return rules.filter(([isBroken]) => isBroken).map(([, fault]) => fault);
}
