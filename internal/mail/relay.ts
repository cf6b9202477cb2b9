/**
 * Reads SMTP_URL and SMTP_TLS: where the mail relay is, who we are there, and how the connection is
 * encrypted. Pure.
 */
import { defined } from '../platform/defined.ts';
import { isLoopback } from '../platform/loopback.ts';

export const tlsModes = ['auto', 'required', 'opportunistic', 'none'] as const;
/**
 * What STARTTLS means for `smtp://`: `required` hands nothing over without it; `opportunistic` uses
 * it where the relay offers it; `none` never does. `auto` is `required` where a password would
 * travel to another machine, else `opportunistic`. In all modes a certificate that cannot be
 * verified ends the connection.
 */
export type TlsMode = (typeof tlsModes)[number];

/** Options of nodemailer's connection. */
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

/** Throws with a sentence for operators that does not quote the URL, which may hold a password. */
export function relayOf(smtpUrl: string, tls: TlsMode): Relay {
  const url = new URL(smtpUrl);
  const secure = url.protocol === 'smtps:';
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (host === '') throw new Error('SMTP_URL: names no host');
  // nodemailer would take options from there, such as one that switches the check of certificates
  // off.
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
