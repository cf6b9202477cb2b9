/** Tells from a store's URL whether others could read or change the traffic. */
import { isLoopback } from './loopback.ts';
import { createMongo } from './mongo.ts';
import { parseRedisUrl } from './redis-url.ts';

/** Throws if the driver cannot read the URI; its message may quote the URI. */
export function mongoLink(uri: string): {
  readonly exposed: boolean;
  readonly unverified: boolean;
} {
  const { tls, hosts, srvHost, rejectUnauthorized, checkServerIdentity } = createMongo(
    uri,
    'check',
  ).options;
  const local =
    srvHost === undefined && hosts.every(({ host, socketPath }) => isLocal(host, socketPath));
  return {
    exposed: !tls && !local,
    // The driver derives both from tlsInsecure and the tlsAllowInvalid… options.
    unverified: rejectUnauthorized === false || checkServerIdentity !== undefined,
  };
}

/** A `rediss` URL always verifies the certificate. */
export function redisExposed(url: string): boolean {
  const { tls, hosts } = parseRedisUrl(url);
  return !tls && !hosts.every(({ host }) => isLoopback(host));
}

function isLocal(host: string | undefined, socketPath: string | undefined): boolean {
  return socketPath !== undefined || (host !== undefined && isLoopback(host));
}
