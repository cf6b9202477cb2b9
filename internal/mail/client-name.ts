/** Our name in the greeting; strict relays require a fully qualified one. */
import { isIPv4, isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { domainOf, HOST_NAME, isHostName } from '../application/email-address.ts';

/** JSON Schema cannot check the address. */
export const clientNameRule = { pattern: `^(?:${HOST_NAME}|\\[(?:IPv6:)?[0-9A-Fa-f.:]+\\])$` };

/** Also accepts an address literal such as `[IPv6:2001:db8::1]` (RFC 5321 §4.1.3). */
export function isClientName(value: string): boolean {
  const [, v6, address] = /^\[(IPv6:)?(.+)\]$/i.exec(value) ?? [];
  if (address === undefined) return isHostName(value);
  return v6 === undefined ? isIPv4(address) : isIPv6(address);
}

export function clientNameOf(given: string, from: string, machine = hostname()): string {
  if (given !== '') return given;
  return isHostName(machine) && !machine.startsWith('localhost.') ? machine : domainOf(from);
}
