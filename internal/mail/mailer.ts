/** Hands a message to the SMTP relay once and reports the exact result. */
import { connect, type LookupFunction, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { defined } from '../platform/defined.ts';
import { clientNameOf } from './client-name.ts';
import type { Message } from './message.ts';
import { refusalOf, type Refusal } from './relay-answers.ts';
import type { Relay } from './relay.ts';

/** In milliseconds. */
export interface MailerLimits {
  readonly connectMs: number;
  /** It covers greeting, AUTH, MAIL and RCPT. */
  readonly beforeContentMs: number;
  /** RFC 5321 §4.5.3.2.6: the relay may take ten minutes to answer the final dot. */
  readonly afterContentMs: number;
  /** Relays close idle connections later, possibly during a hand-over. */
  readonly idleMs: number;
}

export const mailerLimits: MailerLimits = {
  connectMs: 10_000,
  beforeContentMs: 60_000,
  afterContentMs: 600_000,
  idleMs: 60_000,
};

/**
 * - `accepted`: the relay answered 2xx after the content.
 * - `refused`: it answered 4xx or 5xx at `phase`.
 * - `unreachable`: the connection, TLS or AUTH failed, so nothing was mailed. After `connected`,
 *   this mail may have caused it.
 * - `ambiguous`: the connection ended after the content, which may have been mailed.
 * - `aborted`: we gave up before the content, because the claim was lost or the process is closing.
 */
export type HandOver =
  | { readonly result: 'accepted'; readonly answer: string }
  | ({ readonly result: 'refused' } & Refusal)
  | {
      readonly result: 'unreachable';
      readonly connected: boolean;
      readonly cause: string;
      /** The relay greeted us with a 4xx: it takes fewer connections, or none now. */
      readonly busy?: true;
      /** The relay permanently refused our greeting or login. */
      readonly refusesUs?: true;
    }
  | { readonly result: 'ambiguous'; readonly cause: string }
  | { readonly result: 'aborted'; readonly cause: string };

export interface Mailer {
  /**
   * Never rejects. `mayGoOn` is asked just before the content, because a process that was frozen
   * may have lost its claim.
   */
  handOver(
    message: Message,
    recipient: string,
    signal: AbortSignal,
    mayGoOn?: () => boolean,
  ): Promise<HandOver>;
  probe(): Promise<boolean>;
  close(): void;
}

/** nodemailer's errors do not say how far a hand-over came. */
type Progress = 'connecting' | 'connected' | 'content';

interface ProgressMark {
  onProgress(progress: Progress): void;
  mayGoOn(): boolean;
}

interface MailerOptions {
  readonly relay: Relay;
  readonly clientName?: string | undefined;
  readonly from: string;
  readonly fromName?: string;
  readonly maxConnections: number;
  readonly limits?: MailerLimits;
  /** Told how each contact with the relay went: with the error where it did not take us in. */
  readonly onContact?: (result: { readonly error?: unknown }) => void;
  /** Node's default is the system's resolver. */
  readonly lookup?: LookupFunction;
}

export function createMailer(options: MailerOptions): Mailer {
  const { from, fromName = '', limits = mailerLimits, onContact = () => {} } = options;
  const transport = openTransport(options, limits);
  return {
    async handOver(message, recipient, signal, mayGoOn = () => true) {
      const watched = watch(signal, mayGoOn, limits.beforeContentMs);
      // An object is always one address; a string may hold several.
      const to = { name: '', address: recipient };
      try {
        const info = await transport.sendMail({
          ...message,
          from: { name: fromName, address: from },
          to,
          envelope: { from, to: [to] },
          headers: { 'Auto-Submitted': 'auto-generated' },
          textEncoding: 'quoted-printable',
          signal: watched.signal,
          progressMark: watched.mark,
        } as SendMailOptions);
        onContact({});
        return { result: 'accepted', answer: info.response };
      } catch (error) {
        const { progress, lapsed } = watched.reached();
        if (progress !== 'content' && (signal.aborted || lapsed)) {
          return { result: 'aborted', cause: 'claim lost or closing' };
        }
        const failure = describeFailure(error, progress);
        onContact(failure.result === 'unreachable' && !failure.connected ? { error } : {});
        return failure;
      } finally {
        watched.end();
      }
    },
    probe: () =>
      transport.verify().then(
        () => {
          onContact({});
          return true;
        },
        (error: unknown) => {
          onContact({ error });
          return false;
        },
      ),
    close: () => transport.close(),
  };
}

/** After this time the relay's next address is tried. */
const NEXT_ADDRESS_MS = 1_000;

function openTransport(options: MailerOptions, limits: MailerLimits) {
  const { relay, from, clientName = '', maxConnections, lookup } = options;
  const transport = createTransport({
    ...relay,
    name: clientNameOf(clientName, from),
    pool: true,
    maxConnections,
    // The pool would repeat a mail even after its content.
    maxRequeues: 0,
    connectionTimeout: limits.connectMs,
    greetingTimeout: limits.connectMs,
    socketTimeout: limits.afterContentMs,
    idleTimeout: limits.idleMs,
    // Closing also ends a socket that is still connecting.
    socketCloseTimeout: 0,
    disableFileAccess: true,
    disableUrlAccess: true,
    // nodemailer's own resolver caches. It owns this socket at once, so its time-outs also end the
    // connecting.
    getSocket: (_: unknown, done: (error: null, made: { connection: Socket }) => void) => {
      const { host, port } = relay;
      const addresses = { autoSelectFamily: true, autoSelectFamilyAttemptTimeout: NEXT_ADDRESS_MS };
      const connection = connect({
        host,
        port,
        ...addresses,
        ...defined({ lookup }),
      });
      done(null, { connection });
    },
  });
  transport.use('stream', (mail, done) => {
    const { progressMark: mark } = mail.data as unknown as { progressMark: ProgressMark };
    mail.message.build((error, content) => {
      // nodemailer asks for the stream just before MAIL FROM and pipes it after the 354. It would
      // drop a 421 that comes before a real stream was sent.
      mail.message.createReadStream = () => {
        mark.onProgress('connected');
        return {
          pipe: (socket: Writable) => {
            if (!mark.mayGoOn()) return;
            mark.onProgress('content');
            socket.end(content);
          },
        } as unknown as Readable;
      };
      done(error);
    });
  });
  return transport;
}

function watch(signal: AbortSignal, mayGoOn: () => boolean, deadlineMs: number) {
  const beforeContent = new AbortController();
  const giveUp = (): void => beforeContent.abort();
  const timer = setTimeout(giveUp, deadlineMs);
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
      // From here on only the relay's answer is reliable, so nothing interrupts the wait.
      if (reached === 'content') end();
    },
    mayGoOn: () => {
      lapsed = !mayGoOn();
      if (lapsed) giveUp();
      return !beforeContent.signal.aborted;
    },
  };
  return { mark, signal: beforeContent.signal, reached: () => ({ progress, lapsed }), end };
}

interface SmtpError extends Error {
  readonly code?: string;
  readonly command?: string;
  readonly responseCode?: number;
  readonly response?: string;
}

export function describeFailure(thrown: unknown, progress: Progress): HandOver {
  const error = (thrown instanceof Error ? thrown : new Error(String(thrown))) as SmtpError;
  const { code, command, responseCode } = error;
  const cause =
    [code, command, responseCode].filter((part) => part !== undefined).join(' ') || error.name;
  const answered = responseCode !== undefined && responseCode >= 400;
  const phase =
    progress === 'content' ? 'content' : progress === 'connected' ? phaseOf(error) : undefined;
  if (answered && phase !== undefined) {
    return { result: 'refused', ...refusalOf(phase, responseCode, error.response) };
  }
  if (progress === 'content') return { result: 'ambiguous', cause };
  const connected = progress === 'connected';
  if (connected || !answered) return { result: 'unreachable', connected, cause };
  // The relay did not know this mail yet, so the answer is not about it.
  const early = responseCode === 421 || command === 'CONN';
  if (early && refusalOf('mail', responseCode).fault === 'capacity') {
    return { result: 'unreachable', connected, cause, busy: true };
  }
  return {
    result: 'unreachable',
    connected,
    cause,
    ...(responseCode >= 500 ? { refusesUs: true } : {}),
  };
}

function phaseOf({ code, command, responseCode }: SmtpError): 'mail' | 'rcpt' | 'data' | undefined {
  if (code === 'EENVELOPE') return phases[command ?? ''];
  // nodemailer names pipelined commands that failed before a hang-up, but not RCPT.
  return responseCode === 421 ? 'rcpt' : undefined;
}

const phases: Readonly<Record<string, 'mail' | 'rcpt' | 'data'>> = {
  'MAIL FROM': 'mail',
  'RCPT TO': 'rcpt',
  DATA: 'data',
};
