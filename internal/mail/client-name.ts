/**
 * The name by which we greet the relay: strict ones refuse a greeting that is not a fully qualified
 * name.
 */
import { isIPv4, isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { domainOf, HOST_NAME, isHostName } from '../application/email-address.ts';

/** In JSON Schema, for the chart; `isClientName` also reads the address. */
export const clientNameRule = { pattern: `^(?:${HOST_NAME}|\\[(?:IPv6:)?[0-9A-Fa-f.:]+\\])$` };

/**
 * A fully qualified name, or an address literal such as `[192.0.2.1]` or `[IPv6:2001:db8::1]` (RFC
 * 5321 §4.1.3).
 */
export function isClientName(value: string): boolean {
  const [, v6, address] = /^\[(IPv6:)?(.+)\]$/i.exec(value) ?? [];
  if (address === undefined) return isHostName(value);
  return v6 === undefined ? isIPv4(address) : isIPv6(address);
}

/**
 * The name given; else the machine's own if it is fully qualified, which a pod's is not; else the
 * domain of `from`.
 */
export function clientNameOf(given: string, from: string, machine = hostname()): string {
  if (given !== '') return given;
  return isHostName(machine) && !machine.startsWith('localhost.') ? machine : domainOf(from);
}
