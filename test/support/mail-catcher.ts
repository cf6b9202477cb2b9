/** Catches the mails of tests: an SMTP server on one port that misbehaves as a test asks for. */
import { createServer, type Server, type Socket } from 'node:net';
import PostalMime from 'postal-mime';
import { eventually } from './wait.ts';

/** One mail, as the SMTP server got it and as a reader sees it. */
export interface CaughtMail {
  readonly receivedAt: Date;
  /** Addresses of RCPT TO, in the order they were accepted. */
  readonly envelopeTo: readonly string[];
  /** With its angle brackets, as in the header. */
  readonly messageId: string;
  readonly subject: string;
  readonly fromName: string;
  /** Bare addresses of the To header. */
  readonly to: readonly string[];
  readonly text: string;
  readonly html: string;
  /** http and https URLs of the text part. */
  readonly links: readonly string[];
  /** By lower-case names. */
  readonly headers: Readonly<Record<string, string>>;
}

/** What a session has said so far. */
export interface Envelope {
  readonly rcptTo: readonly string[];
}

/**
 * Moments at which the server can misbehave. `data-command` is the reply to the DATA command,
 * before any content; `data` is the reply to the final dot.
 */
type SmtpPhase = 'connect' | 'auth' | 'mail' | 'rcpt' | 'data-command' | 'data';

/**
 * What to do instead of the normal reply at one phase: answer something else (the message is not
 * kept), never answer (not kept), or read the whole message and reset the connection, the message
 * kept or not.
 */
export type SmtpFault =
  | {
      readonly at: SmtpPhase;
      readonly answer: { readonly code: number; readonly message: string };
    }
  | { readonly at: SmtpPhase; readonly hang: true }
  | { readonly at: 'data'; readonly cut: 'before-store' | 'after-store' };

/** The fault for one session; it is asked at each phase. */
export type FaultChoice = (session: Envelope) => SmtpFault | undefined;

const LOOPBACK = '127.0.0.1';
const GREETING = '220 mail-catcher';
const CAPABILITIES =
  '250-mail-catcher\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 AUTH PLAIN LOGIN';
/** The end of a content; its first line end belongs to the content. */
const END = '\r\n.\r\n';

/** Listens on a free port. */
export async function startMailCatcher(): Promise<MailCatcher> {
  const catcher = new MailCatcher();
  await catcher.listenAgain();
  return catcher;
}

export class MailCatcher {
  /** Oldest first; the live list, so take a copy to keep one. */
  readonly mails: CaughtMail[] = [];
  /** TCP connections since the start, and those that a `cut` reset. */
  readonly counts = { connections: 0, cut: 0 };
  readonly #sockets = new Set<Socket>();
  readonly #server = createServer({ noDelay: true }, (socket) => this.#accept(socket));
  #choose: FaultChoice = () => undefined;
  #port = 0;

  /** `smtp://127.0.0.1:PORT` */
  get smtpUrl(): string {
    return `smtp://${LOOPBACK}:${this.#port}`;
  }

  /** By envelope recipient, whatever the To header says; case does not count. */
  mailsTo(address: string): CaughtMail[] {
    const wanted = address.toLowerCase();
    return this.mails.filter(({ envelopeTo }) =>
      envelopeTo.some((recipient) => recipient.toLowerCase() === wanted),
    );
  }

  /** The first kept or coming mail that fits. */
  waitForMail(fits: (mail: CaughtMail) => boolean, timeoutMs: number): Promise<CaughtMail> {
    return eventually('a mail that fits', () => this.mails.find(fits), timeoutMs);
  }

  /**
   * Holds for all sessions until it is set again; `undefined` is good behaviour. Hung sessions stay
   * hung.
   */
  setFault(fault: SmtpFault | FaultChoice | undefined): void {
    this.#choose = typeof fault === 'function' ? fault : () => fault;
  }

  clear(): void {
    this.mails.length = 0;
  }

  /** Connections are refused and the open ones are destroyed. */
  async stopListening(): Promise<void> {
    if (!this.#server.listening) return;
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => void this.#server.close(resolve));
  }

  /** On the same port; rejects when another process took it meanwhile. */
  async listenAgain(): Promise<void> {
    if (this.#server.listening) return;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject).listen(this.#port, LOOPBACK, resolve);
    });
    this.#server.removeAllListeners('error');
    this.#port = portOf(this.#server);
  }

  close(): Promise<void> {
    return this.stopListening();
  }

  #accept(socket: Socket): void {
    this.counts.connections += 1;
    this.#sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => this.#sockets.delete(socket));
    const session = new Session(socket, {
      fault: (at, envelope) => {
        const fault = this.#choose(envelope);
        return fault?.at === at ? fault : undefined;
      },
      keep: (mail) => void this.mails.push(mail),
      cut: () => {
        this.counts.cut += 1;
        socket.resetAndDestroy();
      },
    });
    session.serve().catch(() => socket.destroy());
  }
}

interface SessionTools {
  fault(at: SmtpPhase, envelope: Envelope): SmtpFault | undefined;
  keep(mail: CaughtMail): void;
  cut(): void;
}

/** One connection: its commands in order, each answered before the next. */
class Session {
  readonly #socket: Socket;
  readonly #tools: SessionTools;
  readonly #chunks: AsyncIterator<string>;
  #received = '';
  #rcptTo: string[] = [];

  constructor(socket: Socket, tools: SessionTools) {
    this.#socket = socket;
    this.#tools = tools;
    this.#chunks = socket.setEncoding('latin1')[Symbol.asyncIterator]();
  }

  /** Rejects once the client has gone. */
  async serve(): Promise<void> {
    if (!(await this.#answers('connect', GREETING))) {
      this.#socket.end();
      return;
    }
    for (;;) {
      const line = Buffer.from(await this.#until('\r\n'), 'latin1').toString('utf8');
      const [, address = ''] = /^[^<]*<([^>]*)>/.exec(line) ?? [];
      const [command = ''] = line.toUpperCase().split(' ', 1);
      switch (command) {
        case 'EHLO':
          this.#say(CAPABILITIES);
          break;
        case 'AUTH':
          await this.#answers('auth', '235 welcome');
          break;
        case 'MAIL':
          this.#rcptTo = [];
          await this.#answers('mail', '250 sender taken');
          break;
        case 'RCPT':
          this.#rcptTo.push(address);
          if (!(await this.#answers('rcpt', '250 recipient taken'))) this.#rcptTo.pop();
          break;
        case 'DATA':
          if (this.#rcptTo.length === 0) this.#say('503 no recipient');
          else if (await this.#answers('data-command', '354 go on')) await this.#receive();
          break;
        case 'QUIT':
          this.#socket.end('221 bye\r\n');
          return;
        default:
          this.#say('250 fine');
      }
    }
  }

  /** What the client says up to `end`. */
  async #until(end: string): Promise<string> {
    for (;;) {
      const at = this.#received.indexOf(end);
      if (at >= 0) {
        const said = this.#received.slice(0, at);
        this.#received = this.#received.slice(at + end.length);
        return said;
      }
      const { value, done } = await this.#chunks.next();
      if (done === true) throw new Error('the client has gone');
      this.#received += value;
    }
  }

  #faultAt(at: SmtpPhase): SmtpFault | undefined {
    return this.#tools.fault(at, { rcptTo: this.#rcptTo });
  }

  #say(line: string): void {
    this.#socket.write(`${line}\r\n`);
  }

  #answers(at: SmtpPhase, usual: string): Promise<boolean> {
    return this.#gives(this.#faultAt(at), usual);
  }

  /** Whether the usual answer was given; a fault that hangs never resolves. */
  async #gives(fault: SmtpFault | undefined, usual: string): Promise<boolean> {
    if (fault !== undefined && 'hang' in fault) await new Promise(() => {});
    if (fault === undefined || !('answer' in fault)) {
      this.#say(usual);
      return true;
    }
    this.#say(`${fault.answer.code} ${fault.answer.message}`);
    return false;
  }

  async #receive(): Promise<void> {
    this.#received = `\r\n${this.#received}`;
    const content = (await this.#until(END)).replaceAll('\r\n..', '\r\n.').slice(2);
    const mail = await parsed(Buffer.from(content, 'latin1'), this.#rcptTo);
    const fault = this.#faultAt('data');
    this.#rcptTo = [];
    if (fault !== undefined && 'cut' in fault) {
      if (fault.cut === 'after-store') this.#tools.keep(mail);
      this.#tools.cut();
      return;
    }
    // Kept before the 250 leaves, so a client that has its answer finds the mail. A connection
    // that ended meanwhile gets neither.
    if (fault === undefined && !this.#socket.destroyed) this.#tools.keep(mail);
    await this.#gives(fault, '250 2.0.0 kept');
  }
}

async function parsed(content: Buffer, envelopeTo: readonly string[]): Promise<CaughtMail> {
  const email = await PostalMime.parse(content);
  const text = email.text ?? '';
  return {
    receivedAt: new Date(),
    envelopeTo,
    messageId: email.messageId ?? '',
    subject: email.subject ?? '',
    fromName: email.from?.name ?? '',
    to: (email.to ?? []).flatMap(({ address }) => address ?? []),
    text,
    html: email.html ?? '',
    links: text.match(/https?:\/\/[^\s<>"'`()[\]{}]+/g) ?? [],
    headers: Object.fromEntries(email.headers.map(({ key, value }) => [key, value])),
  };
}

/** The port a TCP server listens on. */
export function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string')
    throw new Error('the server does not listen on a TCP port');
  return address.port;
}
