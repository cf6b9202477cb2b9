/** Hands a message to the SMTP relay once and reports the exact result; reads which relay it is. */
import { connect, type LookupFunction, type Socket } from 'node:net';
import { SpanKind } from '@opentelemetry/api';
import { createTransport, type SendMailOptions } from 'nodemailer';
import SMTPConnection from 'nodemailer/lib/smtp-connection';
import { withDeadline } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import { foundError } from '../platform/process/server-words.ts';
import { failSpan, inSpan, type NamedSpan } from '../platform/process/tracing.ts';
import { markProgress, senderAsLogin, type ProgressMark } from './inside-nodemailer.ts';
import type { Message } from './message.ts';
import { mimeOf } from './mime.ts';
import {
  describeFailure,
  outageOf,
  refusalOf,
  senderOutage,
  type HandOver,
  type Outage,
  type Progress,
} from './relay-answers.ts';
import { hostname } from 'node:os';
import { domainOf, isHostName } from '../application/fields.ts';
import { isLoopback } from '../platform/http/networks.ts';

export const mailerLimits = {
  connectMs: 10_000,
  /** Covers greeting, AUTH, MAIL and RCPT, and a probe. */
  beforeContentMs: 60_000,
  /** RFC 5321 §4.5.3.2.6: the answer to the final dot may take ten minutes. */
  afterContentMs: 600_000,
  /** Relays wait longer, so none closes during a hand-over. */
  idleMs: 60_000,
};
export type MailerLimits = typeof mailerLimits;

export interface Mailer {
  /**
   * Never rejects. `mayGoOn` runs just before the content, because a frozen process may have lost
   * its claim.
   */
  handOver(
    message: Message,
    recipient: string,
    signal: AbortSignal,
    mayGoOn?: () => boolean,
  ): Promise<HandOver>;
  /** Opens a session up to MAIL FROM, without a recipient. Never rejects. */
  probe(): Promise<Outage | undefined>;
  close(): void;
}

interface MailerOptions {
  readonly relay: Relay;
  readonly clientName?: string | undefined;
  readonly from: string;
  readonly fromName?: string;
  readonly maxConnections: number;
  readonly limits?: MailerLimits;
  readonly lookup?: LookupFunction;
}

export function createMailer(options: MailerOptions): Mailer {
  const { limits = mailerLimits } = options;
  const transport = openTransport(options, limits);
  /** Leaves out the recipient. */
  const span: NamedSpan = {
    name: 'send mail',
    kind: SpanKind.CLIENT,
    attributes: {
      'network.protocol.name': 'smtp',
      'server.address': options.relay.host,
      'server.port': options.relay.port,
    },
  };
  return {
    handOver: (message, recipient, signal, mayGoOn = () => true) =>
      inSpan(span, async (opened) => {
        const watched = watch(signal, mayGoOn, limits);
        const handOver = await send(transport, message, recipient, watched, options);
        watched.end();
        opened.setAttribute('partner_ingest.mail', handOver.result);
        if (handOver.result === 'refused') failSpan(opened, String(handOver.code));
        else if (handOver.result !== 'accepted') failSpan(opened, handOver.result);
        return handOver;
      }),
    probe: () => probe(options, limits),
    close: () => transport.close(),
  };
}

async function send(
  transport: ReturnType<typeof openTransport>,
  message: Message,
  recipient: string,
  watched: ReturnType<typeof watch>,
  options: MailerOptions,
): Promise<HandOver> {
  const { from, fromName = '', limits = mailerLimits } = options;
  // A plain string could contain several addresses.
  const to = { name: '', address: recipient };
  try {
    const info = await transport.sendMail({
      raw: mimeOf(message, { name: fromName, address: from }, to),
      envelope: { from, to: [to] },
      signal: watched.signal,
      progressMark: watched.mark,
    } as SendMailOptions);
    return { result: 'accepted', answer: info.response };
  } catch (error) {
    const { progress, lapsed } = watched.reached();
    if (progress !== 'content' && lapsed)
      return { result: 'aborted', cause: 'claim lost or closing' };
    const failure = describeFailure(error, progress);
    if (failure.result !== 'unreachable' || !failure.connected) return failure;
    // If the relay ended the session at MAIL FROM, no e-mail can be sent; the probe tells.
    return { ...failure, ...defined({ outage: await probe(options, limits) }) };
  }
}

const NEXT_ADDRESS_MS = 1_000;

function sessionOptions({ relay, from, clientName = '' }: MailerOptions, limits: MailerLimits) {
  return {
    ...relay,
    name: clientNameOf(clientName, from),
    connectionTimeout: limits.connectMs,
    greetingTimeout: limits.connectMs,
    socketTimeout: limits.afterContentMs,
    // With 0, closing also ends a socket that is still connecting.
    socketCloseTimeout: 0,
  };
}

/** nodemailer's own resolver caches, and its time-outs do not cover connecting. */
function openSocket({ relay, lookup }: MailerOptions, limits: MailerLimits): Socket {
  const { host, port } = relay;
  const addresses = { autoSelectFamily: true, autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_MS };
  const connection = connect({ host, port, ...addresses, ...defined({ lookup }) });
  endIfUnused(connection, limits.afterContentMs);
  return connection;
}

function openTransport(options: MailerOptions, limits: MailerLimits) {
  const transport = createTransport({
    ...sessionOptions(options, limits),
    pool: true,
    maxConnections: options.maxConnections,
    // The pool would repeat a mail even after its content.
    maxRequeues: 0,
    idleTimeout: limits.idleMs,
    disableFileAccess: true,
    disableUrlAccess: true,
    getSocket: (_: unknown, done: (error: null, made: { connection: Socket }) => void) =>
      done(null, { connection: openSocket(options, limits) }),
  });
  markProgress(transport);
  return transport;
}

/**
 * Ends a connection on which we write nothing for `unusedMs`. A relay that keeps sending would
 * reset the socket's own time-out.
 */
function endIfUnused(socket: Socket, unusedMs: number): void {
  let written = -1;
  const timer = setInterval(() => {
    if (socket.bytesWritten === written) socket.destroy();
    written = socket.bytesWritten;
  }, unusedMs);
  socket.once('close', () => clearInterval(timer));
}

async function probe(options: MailerOptions, limits: MailerLimits): Promise<Outage | undefined> {
  const { relay, from } = options;
  let answer: string | undefined;
  const { customAuth, credentials } = senderAsLogin(from, (response) => (answer = response));
  const session = new SMTPConnection({
    ...sessionOptions(options, limits),
    connection: openSocket(options, limits),
    customAuth,
  });
  const asked = new Promise<void>((resolve, reject) => {
    const askSender = (): void => session.login(credentials, () => resolve());
    session.on('error', reject).once('end', () => reject(foundError('ConnectionEnded')));
    session.connect((error) => {
      if (error !== undefined) return reject(error);
      if (relay.auth === undefined || !session.allowsAuth) return askSender();
      session.login(relay.auth, (refused) => (refused === null ? askSender() : reject(refused)));
    });
  });
  const failure = await withDeadline(asked, limits.beforeContentMs, 'a probe of the relay').then(
    () => undefined,
    (error: unknown) => error,
  );
  if (answer === undefined) {
    session.close();
    return outageOf(failure);
  }
  session.quit();
  const responseCode = Number(answer.slice(0, 3));
  if (responseCode < 400) return undefined;
  return senderOutage(refusalOf('mail', responseCode, answer));
}

function watch(signal: AbortSignal, mayGoOn: () => boolean, limits: MailerLimits) {
  const gaveUp = new AbortController();
  const giveUp = (): void => gaveUp.abort();
  let timer = setTimeout(giveUp, limits.beforeContentMs);
  signal.addEventListener('abort', giveUp, { once: true });
  let progress: Progress = 'connecting';
  let lapsed = false;
  const end = (): void => {
    clearTimeout(timer);
    signal.removeEventListener('abort', giveUp);
  };
  const mark: ProgressMark = {
    onProgress: (reached) => {
      progress = reached;
      if (reached !== 'content') return;
      // From here only the relay tells the result, so a lost claim must not end the wait.
      end();
      timer = setTimeout(giveUp, limits.afterContentMs);
    },
    mayGoOn: () => {
      lapsed = !mayGoOn();
      if (lapsed) giveUp();
      return !gaveUp.signal.aborted;
    },
  };
  return {
    mark,
    signal: gaveUp.signal,
    reached: () => ({ progress, lapsed: lapsed || signal.aborted }),
    end,
  };
}

/* Sends the e-mails of tests to one address of the operator, or nowhere. */

/** Accepts without asking the relay. */
export const UNSENT: Pick<Mailer, 'handOver'> = {
  handOver: async () => ({ result: 'accepted', answer: 'test: not sent' }),
};

/** Never mails the applicant; the answer in the mail ledger says so. `count` hears each result. */
export function testMailer(
  mailer: Mailer,
  setting: 'TEST_MAIL_TO' | 'PROBE_MAIL_TO',
  { [setting]: to }: { readonly [Name in typeof setting]?: string | undefined },
  count: (result: HandOver['result']) => void,
): Pick<Mailer, 'handOver'> {
  if (to === undefined) return UNSENT;
  return {
    handOver: async (message, _applicant, ...more) => {
      const handOver = await mailer.handOver(message, to, ...more);
      count(handOver.result);
      if (handOver.result !== 'accepted') return handOver;
      return { ...handOver, answer: `${handOver.answer} (test: sent to ${setting})` };
    },
  };
}

/* Reads the relay from SMTP_URL and SMTP_TLS; chooses our name in the greeting. */

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

/** Never returns a short host name, which strict relays refuse. */
export function clientNameOf(given: string, from: string, machine = hostname()): string {
  if (given !== '') return given;
  return isHostName(machine) && !machine.startsWith('localhost.') ? machine : domainOf(from);
}
