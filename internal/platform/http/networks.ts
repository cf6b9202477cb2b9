/** Reads addresses, and tests them against networks such as `192.0.2.0/24` or single addresses. */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = readonly [Address, number];

/**
 * Reads an address as sockets and proxies write it: `192.0.2.1:4711`, `[2001:db8::1]:4711`,
 * `fe80::1%eth0`. IPv4 mapped into IPv6 is IPv4; a zone, which names a link of one machine, is
 * dropped. Undefined for everything else, short forms such as `10.1` too.
 */
export function readAddress(text: string): Address | undefined {
  // Most texts are plain IPv4.
  if (isIP(text) === 4) return ipaddr.IPv4.parse(text);
  const [, bracketed, dotted] =
    /^(?:\[([^\]]+)\]|(\d+(?:\.\d+){3}))(?::(?:\d{1,5}|_[\w.-]+))?$/.exec(text) ?? [];
  const address = (bracketed ?? dotted ?? text).replace(/%[\w.-]+$/, '');
  return isIP(address) === 0 ? undefined : ipaddr.process(address);
}

function parse(text: string): Network | undefined {
  const [address = ''] = text.split('/');
  const kind = isIP(address);
  if (kind === 0 || address.includes('%')) return undefined;
  const network = text === address ? `${text}/${kind === 4 ? 32 : 128}` : text;
  if (!ipaddr.isValidCIDR(network)) return undefined;
  const [read, bits] = ipaddr.parseCIDR(network);
  if (!(read instanceof ipaddr.IPv6) || !read.isIPv4MappedAddress()) return [read, bits];
  // The first 96 bits only mark IPv4 mapped into IPv6.
  return bits < 96 ? undefined : [read.toIPv4Address(), bits - 96];
}

export function isNetwork(text: string): boolean {
  return parse(text) !== undefined;
}

/**
 * Whether `host` is this machine. Takes a name or an address without brackets; makes no DNS query.
 */
export function isLoopback(host: string): boolean {
  return (
    host.toLowerCase() === 'localhost' ||
    (ipaddr.isValid(host) && ipaddr.process(host).range() === 'loopback')
  );
}

/** Takes a text, or an address from `readAddress`. */
export type AddressTest = (address: string | Address) => boolean;

export function addressTest(networks: readonly string[]): AddressTest {
  const parsed = networks.map(parse).filter((network) => network !== undefined);
  return (given) => {
    if (parsed.length === 0) return false;
    const address = typeof given === 'string' ? readAddress(given) : given;
    return address !== undefined && parsed.some((network) => holds(network, address));
  };
}

function holds([network, bits]: Network, address: Address): boolean {
  return network.kind() === address.kind() && address.match(network, bits);
}
