/** Whether the way to a store can be read or changed by others, as its URL says. Opens nothing. */
import { MongoClient } from 'mongodb';
import { isLoopback } from './loopback.ts';
import { parseRedisUrl } from './redis-url.ts';

/** Throws where the driver cannot read the URI; its message may quote the URI. */
export function mongoLink(uri: string): {
  readonly exposed: boolean;
  readonly unverified: boolean;
} {
  const { tls, hosts, srvHost, rejectUnauthorized, checkServerIdentity } = new MongoClient(uri)
    .options;
  const local =
    srvHost === undefined && hosts.every(({ host, socketPath }) => isLocal(host, socketPath));
  return {
    exposed: !tls && !local,
    // The driver makes these two of tlsInsecure, tlsAllowInvalidCertificates and
    // tlsAllowInvalidHostnames.
    unverified: rejectUnauthorized === false || checkServerIdentity !== undefined,
  };
}

/**
 * Whether the traffic with Redis leaves this machine in clear. A `rediss` URL always verifies the
 * certificate.
 */
export function redisExposed(url: string): boolean {
  const { tls, hosts } = parseRedisUrl(url);
  return !tls && !hosts.every(({ host }) => isLoopback(host));
}

function isLocal(host: string | undefined, socketPath: string | undefined): boolean {
  return socketPath !== undefined || (host !== undefined && isLoopback(host));
}
