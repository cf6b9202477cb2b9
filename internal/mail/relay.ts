/** Parses SMTP_URL and SMTP_TLS. */
import { defined } from '../platform/process/defined.ts';
import { isLoopback } from '../platform/http/networks.ts';

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
  // nodemailer would read options there, such as one that disables certificate checks.
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
