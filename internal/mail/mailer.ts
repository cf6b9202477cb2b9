/** Hands a message to the SMTP relay once and reports the exact result. */
import { Readable } from 'node:stream';
import { createTransport } from 'nodemailer';
import type { Message } from './message.ts';
import { refusalOf, type Refusal } from './relay-answers.ts';
import type { Relay } from './relay.ts';
import { composer } from './source.ts';

/** Bounds of one hand-over, in milliseconds. */
export interface MailerLimits {
  readonly connectMs: number;
  /** From the start until the relay asks for the content; it covers greeting, AUTH, MAIL and RCPT. */
  readonly beforeContentMs: number;
  /** RFC 5321 §4.5.3.2.6: after the final dot the relay may take ten minutes to answer. */
  readonly afterContentMs: number;
  /** Idle connections are closed by us, before relays commonly do it in the middle of a hand-over. */
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
 * - `unreachable`: the connection, TLS, AUTH or an answer before the content failed, so nothing was mailed; `connected`
 *   when the relay had taken us in before, so that this mail may have a part in it;
 * - `ambiguous`: the connection ended after content was sent: it may or may not have been mailed;
 * - `aborted`: we gave up before the content, because the claim was lost or the process is closing.
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
    }
  | { readonly result: 'ambiguous'; readonly cause: string }
  | { readonly result: 'aborted'; readonly cause: string };

export interface Mailer {
  /**
   * Never rejects. `recipient` is one address that has been validated. `mayGoOn` is asked right before the
   * content goes out: a process that was frozen until then continues before it learns that its claim is lost.
   */
  handOver(message: Message, recipient: string, signal: AbortSignal, mayGoOn?: () => boolean): Promise<HandOver>;
  /** Whether the relay greets, and takes our TLS and AUTH settings. */
  probe(): Promise<boolean>;
  close(): void;
}

/** How far a hand-over came: in a session ready for mail, or asked for the content. nodemailer's errors do not tell. */
type Progress = 'connecting' | 'connected' | 'content';

interface ProgressMark {
  onProgress(progress: Progress): void;
  /** Whether the content may go out; if not, the hand-over is being given up. */
  mayGoOn(): boolean;
}

interface MailerOptions {
  readonly relay: Relay;
  readonly from: string;
  /** Shown with the sender address; empty for none. */
  readonly fromName?: string;
  readonly maxConnections: number;
  readonly limits?: MailerLimits;
}

export function createMailer(options: MailerOptions): Mailer {
  const { from, fromName = '', limits = mailerLimits } = options;
  const compose = composer({ name: fromName, address: from });
  const transport = openTransport(options, limits);
  return {
    async handOver(message, recipient, signal, mayGoOn = () => true) {
      const watched = watch(signal, mayGoOn, limits.beforeContentMs);
      try {
        const info = await transport.sendMail({
          envelope: { from, to: [recipient] },
          raw: compose(message, recipient, new Date()),
          // Without it nodemailer makes one up for its log.
          messageId: message.messageId,
          signal: watched.signal,
          progressMark: watched.mark,
        } as Parameters<typeof transport.sendMail>[0]);
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

function openTransport({ relay, maxConnections }: MailerOptions, limits: MailerLimits) {
  const transport = createTransport({
    ...relay,
    pool: true,
    maxConnections,
    // The pool would send again by itself after a cut, also one after the content. Repeating is our decision.
    maxRequeues: 0,
    connectionTimeout: limits.connectMs,
    greetingTimeout: limits.connectMs,
    socketTimeout: limits.afterContentMs,
    idleTimeout: limits.idleMs,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
  transport.use('stream', (mail, done) => {
    const { raw, progressMark: mark } = mail.data as { raw: string; progressMark: ProgressMark };
    // nodemailer makes the stream once the session is ready, just before MAIL FROM. Its own passes `raw` through four.
    mail.message.createReadStream = () => {
      mark.onProgress('connected');
      const stream = Readable.from(Buffer.from(raw));
      const pipe = stream.pipe.bind(stream);
      // nodemailer pipes the content to the socket only after the relay's 354.
      stream.pipe = (destination, pipeOptions) => {
        if (!mark.mayGoOn()) return destination;
        mark.onProgress('content');
        return pipe(destination, pipeOptions);
      };
      return stream;
    };
    done();
  });
  return transport;
}

/** Watches one hand-over: its own signal aborts on `signal`, after `deadlineMs`, and if `mayGoOn` says no at the content. */
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
      // From the content on only an answer tells the truth, so nothing of ours interrupts the wait for it.
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
  const cause =
    [error.code, error.command, error.responseCode].filter((part) => part !== undefined).join(' ') || error.name;
  const { responseCode } = error;
  const answered = responseCode !== undefined && responseCode >= 400;
  if (progress === 'content') {
    return answered
      ? { result: 'refused', ...refusalOf('content', responseCode, error.response) }
      : { result: 'ambiguous', cause };
  }
  const phase = error.code === 'EENVELOPE' ? phases[error.command ?? ''] : undefined;
  if (answered && phase !== undefined) {
    return { result: 'refused', ...refusalOf(phase, responseCode, error.response) };
  }
  // nodemailer's name for what comes before any command of ours: the greeting.
  const busy = error.command === 'CONN' && answered && refusalOf('mail', responseCode).fault === 'capacity';
  return { result: 'unreachable', connected: progress === 'connected', cause, ...(busy ? { busy } : {}) };
}

const phases: Readonly<Record<string, 'mail' | 'rcpt' | 'data'>> = {
  'MAIL FROM': 'mail',
  'RCPT TO': 'rcpt',
  DATA: 'data',
};
