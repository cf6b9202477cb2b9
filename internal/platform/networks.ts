/**
 * Tests addresses against networks such as `192.0.2.0/24`; a single address is a network of one.
 */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

type Address = ipaddr.IPv4 | ipaddr.IPv6;
type Network = readonly [Address, number];

/** Short forms such as `10.1` are not addresses. */
function parse(text: string): Network | undefined {
  const [address = '', bits, ...rest] = text.split('/');
  if (isIP(address) === 0 || address.includes('%') || rest.length > 0) return undefined;
  const parsed = ipaddr.parse(address);
  const whole = parsed.kind() === 'ipv4' ? 32 : 128;
  if (bits === undefined) return [parsed, whole];
  return /^\d{1,3}$/.test(bits) && Number(bits) <= whole ? [parsed, Number(bits)] : undefined;
}

export function isNetwork(text: string): boolean {
  return parse(text) !== undefined;
}

export type AddressTest = (address: string) => boolean;

/** IPv4 addresses also match in their IPv6-mapped form. */
export function addressTest(networks: readonly string[]): AddressTest {
  const parsed = networks.flatMap((network) => {
    const found = parse(network);
    return found === undefined ? [] : [found];
  });
  return (text) => {
    // A zone names a link of this machine.
    const [address = ''] = text.split('%', 1);
    return isIP(address) !== 0 && parsed.some((network) => holds(network, ipaddr.process(address)));
  };
}

function holds([network, bits]: Network, address: Address): boolean {
  return network.kind() === address.kind() && address.match(network, bits);
}

/** The intersection: two networks are either nested or disjoint. */
export function commonNetworks(
  some: readonly string[],
  others: readonly string[],
): readonly string[] {
  const within = (inner: readonly string[], outer: readonly string[]): string[] =>
    inner.filter((network) => outer.some((one) => isWithin(network, one)));
  return [...new Set([...within(some, others), ...within(others, some)])];
}

function isWithin(inner: string, outer: string): boolean {
  const network = parse(inner);
  const around = parse(outer);
  if (network === undefined || around === undefined) return false;
  return around[1] <= network[1] && holds(around, network[0]);
}
