/** Finds the client of a request behind trusted proxies, and its key in the rate limit. */
import type { IncomingMessage } from 'node:http';
import ipaddr from 'ipaddr.js';
import { readAddress, type AddressTest } from '../platform/http/networks.ts';

export interface ClientAddress {
  /** IPv4 in its short form, even if mapped into IPv6. */
  readonly ip: string;
  readonly limitKey: string;
}

const SUBNET_BITS = 64;
const IPV4_AT_BYTE = 12;
const nobodys: ReadonlySet<string> = new Set(['unspecified', 'broadcast', 'multicast']);

/**
 * A client owns at least a /64 of IPv6. NAT64 (RFC 6052) maps all of IPv4 into `64:ff9b::/96`, so
 * there the inner address counts.
 */
function limitKeyOf(address: ipaddr.IPv6): string {
  return address.range() === 'rfc6052'
    ? address.toByteArray().slice(IPV4_AT_BYTE).join('.')
    : ipaddr.IPv6.networkAddressFromCIDR(`${address.toString()}/${SUBNET_BITS}`).toString();
}

/** A client or a trusted proxy. */
export interface Hop {
  readonly client: ClientAddress;
  readonly isProxy: boolean;
}

/** The header in which trusted proxies name their clients; a client may have written the other. */
export type ClientHeader = 'X-Forwarded-For' | 'Forwarded';

export type ReadHop = (text: string) => Hop | undefined;

/** Returns undefined for text that is no address of a client. */
export function hopReader(isProxy: AddressTest): ReadHop {
  return (text) => {
    const address = readAddress(text);
    if (address === undefined || nobodys.has(address.range())) return undefined;
    const ip = address.toString();
    const limitKey = address instanceof ipaddr.IPv6 ? limitKeyOf(address) : ip;
    return { client: { ip, limitKey }, isProxy: isProxy(address) };
  };
}

/**
 * Returns the nearest address that is not a trusted proxy's, else the farthest. `doubtful`: an
 * untrusted peer's hops are ignored, or a trusted proxy names no address and stands for all its
 * clients.
 */
export function findClient(
  headers: IncomingMessage['headers'],
  peer: Hop,
  readHop: ReadHop,
  header: ClientHeader,
): { readonly client: ClientAddress; readonly doubtful: boolean } {
  let { client } = peer;
  const hops = hopsIn(headers, header);
  if (!peer.isProxy) return { client, doubtful: hops.length > 0 };
  for (const text of hops.toReversed()) {
    const hop = readHop(text);
    if (hop === undefined) return { client, doubtful: true };
    client = hop.client;
    if (!hop.isProxy) break;
  }
  return { client, doubtful: false };
}

function hopsIn(
  { 'x-forwarded-for': list, forwarded }: IncomingMessage['headers'],
  header: ClientHeader,
): readonly string[] {
  if (header === 'Forwarded')
    return forwarded === undefined ? [] : forwardedHops(forwarded.replaceAll(/\s/g, ''));
  return list === undefined
    ? []
    : String(list)
        .split(',')
        .map((hop) => hop.trim());
}

const PAIR = /(?:([^=;,"]+)=(?:"((?:[^"\\]|\\.)*)"|([^;,"]*)))?(;|,|$)/y;

/** A malformed header may hide any hop, so it counts as no address. */
function forwardedHops(header: string): readonly string[] {
  const hops: string[] = [];
  let hop = '';
  for (let at = 0; ; at = PAIR.lastIndex) {
    PAIR.lastIndex = at;
    const pair = PAIR.exec(header);
    if (pair === null) return [''];
    const [, name, quoted, bare = '', end] = pair;
    if (name?.toLowerCase() === 'for') hop = quoted?.replaceAll(/\\(.)/g, '$1') ?? bare;
    if (end === ';') continue;
    hops.push(hop);
    if (end === '') return hops;
    hop = '';
  }
}
