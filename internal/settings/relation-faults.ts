/** Checks settings that depend on each other. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { hasPublishedSecret } from '../partner/published-secrets.ts';
import { mongoLink } from '../platform/mongo.ts';
import { isLoopback } from '../platform/networks.ts';
import { redisExposed } from '../platform/redis-url.ts';

/** Settings that are refused by themselves are absent. */
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
    // The console never starts open.
    [
      !hasOidc && host !== undefined && !isLoopback(host),
      'CONSOLE_HOST: is not loopback, so OIDC_ISSUER is required: nobody else asks who looks',
    ],
  ];
  return rules.filter(([isBroken]) => isBroken).map(([, fault]) => fault);
}
