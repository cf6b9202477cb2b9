/** The rules by which settings are checked. */
import { createPrivateKey, X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { mongoLink } from './stores/mongo.ts';
import { isLoopback, isNetwork } from './http/networks.ts';
import { BARE_LOGIN, hasBareLogin, parseRedisUrl } from './stores/redis-url.ts';

export const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .refine(
      (value) => /^\d+$/.test(value) && Number(value) >= min && Number(value) <= max,
      `must be a whole number from ${min} to ${max}`,
    )
    .transform(Number);

/** `faultOf` says why a value cannot be used. */
export const unless = (faultOf: (value: string) => string | undefined) =>
  z.string().superRefine((value, context) => {
    const message = faultOf(value);
    if (message !== undefined) context.addIssue({ code: 'custom', message });
  });

export const url = (schemes: readonly string[]) =>
  unless((value) => {
    if (hasBareLogin(value)) return BARE_LOGIN;
    const { protocol = '' } = URL.parse(value) ?? {};
    if (schemes.includes(protocol.slice(0, -1))) return undefined;
    return `must be a URL that starts with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`;
  });

/** Links to this page carry a secret, so it needs TLS, except on loopback. */
export const securePage = z.string().refine((value) => {
  const page = URL.parse(value);
  if (page?.protocol === 'https:') return true;
  return page?.protocol === 'http:' && isLoopback(page.hostname.replace(/^\[(.*)\]$/, '$1'));
}, 'must be a URL that starts with https://, or with http:// on loopback: its links let people in');

export const redisUrl = unless((value) => {
  try {
    parseRedisUrl(value);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
});

const inPem = (what: string, read: (text: string) => unknown) =>
  unless((value) => {
    try {
      read(value);
      return undefined;
    } catch {
      return `must be ${what} in PEM`;
    }
  });
export const certificate = inPem('a certificate', (text) => new X509Certificate(text));
export const privateKey = inPem('a private key without a passphrase', createPrivateKey);

export const mongodbUri = unless((value) => {
  if (!/^mongodb(\+srv)?:\/\/.+/.test(value))
    return 'must be a URI that starts with mongodb:// or mongodb+srv://';
  try {
    if (!mongoLink(value).unverified) return undefined;
  } catch {
    return 'is no connection string for the driver: percent-encode user and password, and look for misspelt options';
  }
  return (
    "switches the check of the server's certificate off: remove tlsInsecure, tlsAllowInvalidCertificates and " +
    'tlsAllowInvalidHostnames; NODE_EXTRA_CA_CERTS adds a CA'
  );
});

/** Parses `a, b` to `['a', 'b']`. */
export const listOf = (faultOf: (entry: string) => string | undefined) =>
  z
    .string()
    .transform((value) =>
      value
        .split(',')
        .map((entry) => entry.trim())
        .filter(Boolean),
    )
    .pipe(z.array(unless(faultOf)));

export const cidrList = listOf((entry) =>
  isNetwork(entry) ? undefined : `"${entry}" is not an address or a CIDR range such as 10.0.0.0/8`,
);

/** An empty setting counts as unset. */
export const oneLine = (max: number) =>
  z
    .string()
    .regex(
      new RegExp(`^[^\\p{Cc}]{0,${max}}$`, 'u'),
      `must be one line of at most ${max} characters`,
    );

/** A name in Kubernetes (RFC 1123). */
export const DNS_LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

export const port = wholeNumber(0, 65_535);
export const days = wholeNumber(1, 36_500);
export const nonEmpty = z.string().min(1, 'must not be empty');

export const flag = z
  .enum(['true', 'false'], 'must be true or false')
  .transform((value) => value === 'true');
