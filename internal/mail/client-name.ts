/** The name by which we greet the relay; strict relays want a fully qualified one. */
import { isIPv4, isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { domainOf, HOST_NAME, isHostName } from '../application/email-address.ts';

/** JSON Schema cannot check the address. */
export const clientNameRule = { pattern: `^(?:${HOST_NAME}|\\[(?:IPv6:)?[0-9A-Fa-f.:]+\\])$` };

/**
 * Also takes an address literal such as `[192.0.2.1]` or `[IPv6:2001:db8::1]` (RFC 5321 §4.1.3).
 */
export function isClientName(value: string): boolean {
  const [, v6, address] = /^\[(IPv6:)?(.+)\]$/i.exec(value) ?? [];
  if (address === undefined) return isHostName(value);
  return v6 === undefined ? isIPv4(address) : isIPv6(address);
}

/** A pod's own name is usually not fully qualified. */
export function clientNameOf(given: string, from: string, machine = hostname()): string {
  if (given !== '') return given;
  return isHostName(machine) && !machine.startsWith('localhost.') ? machine : domainOf(from);
}
