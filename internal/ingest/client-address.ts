/** Who is asking: the client's address, and the key it is limited by. */
import { isIP } from 'node:net';
import rateLimit from '@fastify/rate-limit';
import type { FastifyRequest } from 'fastify';

export interface ClientAddress {
  /** The whole address; IPv4 in its short form even if it came mapped into IPv6. */
  readonly ip: string;
  /** IPv6 clients own at least a /64, so that is what they are limited by. */
  readonly limitKey: string;
}

const SUBNET_BITS = 64;
const WHOLE_ADDRESS_BITS = 128;

/** `request.ip` is the socket's address, or what trusted proxies say; what is no address falls back to the socket's. */
export function clientAddress(request: FastifyRequest): ClientAddress {
  const claimed = withoutPort(request.ip);
  const address = isIP(claimed) === 0 ? (request.socket.remoteAddress ?? '0.0.0.0') : claimed;
  if (!address.includes(':')) return { ip: address, limitKey: address };
  return {
    ip: rateLimit.normalizeIP(address, WHOLE_ADDRESS_BITS),
    limitKey: rateLimit.normalizeIP(address, SUBNET_BITS),
  };
}

/** Some proxies append the client's port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
function withoutPort(address: string): string {
  return /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(address)?.[1] ?? /^\[(.+)\](?::\d+)?$/.exec(address)?.[1] ?? address;
}
