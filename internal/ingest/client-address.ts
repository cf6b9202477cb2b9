/** A client's address, and its key in the rate limit. */
import { isIP } from 'node:net';
import rateLimit from '@fastify/rate-limit';
import ipaddr from 'ipaddr.js';

export interface ClientAddress {
  /** IPv4 in its short form, even if mapped into IPv6. */
  readonly ip: string;
  readonly limitKey: string;
}

const SUBNET_BITS = 64;
const WHOLE_ADDRESS_BITS = 128;
const IPV4_AT_BYTE = 12;

/** `claimed` comes from trusted proxies. */
export function clientAddress(claimed: string, socketAddress: string): ClientAddress {
  const bare = withoutPort(claimed);
  const address = isIP(bare) === 0 ? socketAddress : bare;
  if (!address.includes(':')) return { ip: address, limitKey: address };
  return { ip: rateLimit.normalizeIP(address, WHOLE_ADDRESS_BITS), limitKey: limitKeyOf(address) };
}

/**
 * A client owns at least a /64 of IPv6. NAT64 (RFC 6052) maps all of IPv4 into `64:ff9b::/96`, so
 * there the inner address counts.
 */
export function limitKeyOf(address: string): string {
  if (isIP(address) !== 6) return address;
  if (/^0{0,2}64:ff9b:/i.test(address)) {
    const parsed = ipaddr.IPv6.parse(address);
    if (parsed.range() === 'rfc6052') return parsed.toByteArray().slice(IPV4_AT_BYTE).join('.');
  }
  return rateLimit.normalizeIP(address, SUBNET_BITS);
}

/** Some proxies append the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
function withoutPort(address: string): string {
  return (
    /^(\d+\.\d+\.\d+\.\d+):\d+$/.exec(address)?.[1] ??
    /^\[(.+)\](?::\d+)?$/.exec(address)?.[1] ??
    address
  );
}
