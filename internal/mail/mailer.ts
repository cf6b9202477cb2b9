/** Hands a message to the SMTP relay once and reports the exact result. */
import { connect, type LookupFunction, type Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { createTransport, type SendMailOptions } from 'nodemailer';
import { defined } from '../platform/defined.ts';
import { clientNameOf } from './client-name.ts';
import type { Message } from './message.ts';
import { refusalOf, type Refusal } from './relay-answers.ts';
import type { Relay } from './relay.ts';

/** Bounds of one hand-over, in milliseconds. */
export interface MailerLimits {
  readonly connectMs: number;
  /**
   * From the start until the relay asks for the content; it covers greeting, AUTH, MAIL and RCPT.
   */
  readonly beforeContentMs: number;
  /** RFC 5321 §4.5.3.2.6: after the final dot the relay may take ten minutes to answer. */
  readonly afterContentMs: number;
  /**
   * Idle connections are closed by us, before relays commonly do it in the middle of a hand-over.
   */
  readonly idleMs: number;
}

export const mailerLimits: MailerLimits = {
  connectMs: 10_000,
  beforeContentMs: 60_000,
  afterContentMs: 600_000,
  idleMs: 60_000,
};

/**
 * Result of a hand-over:
 * - `accepted`: the relay answered 2xx after the content;
 * - `refused`: it answered 4xx or 5xx at `phase`;
 * - `unreachable`: the connection, TLS, AUTH or an answer before the content failed, so nothing
 *   was mailed; `connected` when the relay had taken us in before, so that this mail may have a
 *   part in it;
 * - `ambiguous`: the connection ended after content was sent: it may or may not have been mailed;
 * - `aborted`: we gave up before the content, because the claim was lost or the process is
 *   closing.
 */
export type HandOver =
  | { readonly result: 'accepted'; readonly answer: string }
  | ({ readonly result: 'refused' } & Refusal)
  | {
      readonly result: 'unreachable';
      readonly connected: boolean;
      readonly cause: string;
      /** It greeted us with "later": it takes fewer connections, or none now. */
      readonly busy?: true;
      /** It refused our greeting or login for good. */
      readonly refusesUs?: true;
    }
  | { readonly result: 'ambiguous'; readonly cause: string }
  | { readonly result: 'aborted'; readonly cause: string };

export interface Mailer {
  /**
   * Never rejects. `recipient` is one address that has been validated. `mayGoOn` is asked right
   * before the content goes out: a process that was frozen until then continues before it learns
   * that its claim is lost.
   */
  handOver(
    message: Message,
    recipient: string,
    signal: AbortSignal,
    mayGoOn?: () => boolean,
  ): Promise<HandOver>;
  /** Whether the relay greets, and takes our TLS and AUTH settings. */
  probe(): Promise<boolean>;
  close(): void;
}

/**
 * How far a hand-over came: in a session ready for mail, or asked for the content. nodemailer's
 * errors do not tell.
 */
type Progress = 'connecting' | 'connected' | 'content';

interface ProgressMark {
  onProgress(progress: Progress): void;
  /** Whether the content may go out; if not, the hand-over is being given up. */
  mayGoOn(): boolean;
}

interface MailerOptions {
  readonly relay: Relay;
  /** What we greet the relay by, where it is set. */
  readonly clientName?: string | undefined;
  readonly from: string;
  /** Shown with the sender address; empty for none. */
  readonly fromName?: string;
  readonly maxConnections: number;
  readonly limits?: MailerLimits;
  /** Node's default asks the system: the hosts file, search domains and all that it is set to. */
  readonly lookup?: LookupFunction;
}

export function createMailer(options: MailerOptions): Mailer {
  const { from, fromName = '', limits = mailerLimits } = options;
  const transport = openTransport(options, limits);
  return {
    async handOver(message, recipient, signal, mayGoOn = () => true) {
      const watched = watch(signal, mayGoOn, limits.beforeContentMs);
      // As an object it is one address, whatever is in it; a string may hold several.
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
        return { result: 'accepted', answer: info.response };
      } catch (error) {
        const { progress, lapsed } = watched.reached();
        if (progress !== 'content' && (signal.aborted || lapsed)) {
          return { result: 'aborted', cause: 'claim lost or closing' };
        }
        return describeFailure(error, progress);
      } finally {
        watched.end();
      }
    },
    probe: () =>
      transport.verify().then(
        () => true,
        () => false,
      ),
    close: () => transport.close(),
  };
}

/**
 * An address of the relay that has not answered by then is left for the next one, which matters
 * where it has several.
 */
const NEXT_ADDRESS_MS = 1_000;

function openTransport(options: MailerOptions, limits: MailerLimits) {
  const { relay, from, clientName = '', maxConnections, lookup } = options;
  const transport = createTransport({
    ...relay,
    name: clientNameOf(clientName, from),
    pool: true,
    maxConnections,
    // The pool would send again by itself after a cut, also one after the content. Repeating is our
    // decision.
    maxRequeues: 0,
    connectionTimeout: limits.connectMs,
    greetingTimeout: limits.connectMs,
    socketTimeout: limits.afterContentMs,
    idleTimeout: limits.idleMs,
    // Closing also ends a socket that is still being connected.
    socketCloseTimeout: 0,
    disableFileAccess: true,
    disableUrlAccess: true,
    // nodemailer's own way to an address asks DNS first and keeps the answer. It owns this socket
    // from the first moment, so its time-outs and a given up hand-over end the connecting too.
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
      // nodemailer asks for the stream once the session is ready, just before MAIL FROM, and pipes
      // it to the socket only after the relay's 354. A stream of its own would be taken for unsent
      // after a 421, whose answer it then drops.
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

/**
 * Watches one hand-over: its own signal aborts on `signal`, after `deadlineMs`, and if `mayGoOn`
 * says no at the content.
 */
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
      // From the content on only an answer tells the truth, so nothing of ours interrupts the wait
      // for it.
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

/** Reads nodemailer's error. `progress` tells a plain failure from an ambiguous one. */
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
  // It came before it knew who we are, so it is about the relay.
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
  // Of commands sent together nodemailer names those that failed before the relay hung up, but not
  // RCPT.
  return responseCode === 421 ? 'rcpt' : undefined;
}

const phases: Readonly<Record<string, 'mail' | 'rcpt' | 'data'>> = {
  'MAIL FROM': 'mail',
  'RCPT TO': 'rcpt',
  DATA: 'data',
};
