/** Reads the relay from SMTP_URL and SMTP_TLS; chooses our name in the greeting. */
import { isIPv4, isIPv6 } from 'node:net';
import { hostname } from 'node:os';
import { domainOf, HOST_NAME, isHostName } from '../application/email-address.ts';
import { isLoopback } from '../platform/http/networks.ts';
import { defined } from '../platform/process/defined.ts';

const tlsModes = ['auto', 'required', 'opportunistic', 'none'] as const;
/** `auto` requires TLS if a password would leave this machine. Certificates are always verified. */
export type TlsMode = (typeof tlsModes)[number];

export interface Relay {
  readonly host: string;
  readonly port: number;
  /** TLS from the first byte. */
  readonly secure: boolean;
  readonly requireTLS: boolean;
  readonly ignoreTLS: boolean;
  readonly auth?: { readonly user: string; readonly pass: string };
}

const SUBMISSION_PORT = 587;
const SUBMISSIONS_PORT = 465;

/** Errors do not quote the URL, which may contain a password. */
export function relayOf(smtpUrl: string, tls: TlsMode): Relay {
  const url = new URL(smtpUrl);
  const secure = url.protocol === 'smtps:';
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (host === '') throw new Error('SMTP_URL: names no host');
  // nodemailer reads options there, such as one that disables certificate checks.
  if (url.search !== '' || url.hash !== '' || !['', '/'].includes(url.pathname)) {
    throw new Error(
      'SMTP_URL: must end after host and port; TLS is set by SMTP_TLS and NODE_EXTRA_CA_CERTS',
    );
  }
  if (secure && tls === 'none') {
    throw new Error(
      'SMTP_TLS: "none" contradicts smtps:// in SMTP_URL, which is TLS from the first byte',
    );
  }
  const auth = credentialsOf(url);
  const required =
    tls === 'required' || (tls === 'auto' && auth !== undefined && !isLoopback(host));
  return {
    host,
    port: url.port === '' ? (secure ? SUBMISSIONS_PORT : SUBMISSION_PORT) : Number(url.port),
    secure,
    requireTLS: !secure && required,
    ignoreTLS: !secure && tls === 'none',
    ...defined({ auth }),
  };
}

function credentialsOf(url: URL): Relay['auth'] {
  if (url.username === '' && url.password === '') return undefined;
  if (url.username === '' || url.password === '')
    throw new Error('SMTP_URL: has a user or a password, but not both');
  try {
    return { user: decodeURIComponent(url.username), pass: decodeURIComponent(url.password) };
  } catch {
    throw new Error('SMTP_URL: a "%" in user or password must be written as %25');
  }
}

/** JSON Schema cannot check the address in brackets. */
export const clientNameRule = { pattern: `^(?:${HOST_NAME}|\\[(?:IPv6:)?[0-9A-Fa-f.:]+\\])$` };

/** Also accepts an address literal such as `[IPv6:2001:db8::1]` (RFC 5321 §4.1.3). */
export function isClientName(value: string): boolean {
  const [, v6, address] = /^\[(IPv6:)?(.+)\]$/i.exec(value) ?? [];
  if (address === undefined) return isHostName(value);
  return v6 === undefined ? isIPv4(address) : isIPv6(address);
}

/** Never returns a short host name, which strict relays refuse. */
export function clientNameOf(given: string, from: string, machine = hostname()): string {
  if (given !== '') return given;
  return isHostName(machine) && !machine.startsWith('localhost.') ? machine : domainOf(from);
}
