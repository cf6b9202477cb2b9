/** An SMTP server that keeps mails and fails as a test asks. */
import type { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import PostalMime from 'postal-mime';
import { SMTPServer, type SMTPServerDataStream, type SMTPServerSession } from 'smtp-server';
import { listen } from './listen.ts';
import { eventually } from './wait.ts';

type CaughtMail = Awaited<ReturnType<typeof parsed>>;

interface Envelope {
  readonly rcptTo: readonly string[];
}

/**
 * Phases that can fail. `data-command` is the reply to DATA, `data` the reply after the content.
 */
type SmtpPhase = 'connect' | 'auth' | 'mail' | 'rcpt' | 'data-command' | 'data';

/** How a session fails. After a cut the message is kept only with `keep`. */
export type SmtpFault =
  | {
      readonly at: SmtpPhase;
      readonly answer: { readonly code: number; readonly message: string };
    }
  | { readonly at: SmtpPhase; readonly hang: true }
  | { readonly at: 'data'; readonly cut: 'before-store' | 'after-store' };

/** Chooses the fault of a session at each phase. */
export type FaultChoice = (session: Envelope) => SmtpFault | undefined;

const LOOPBACK = '127.0.0.1';
/** The server waits longer than the ten minutes of a client. */
const IDLE_MS = 15 * 60_000;

type Reply = (error?: Error | null) => void;
type Connection = SMTPServer['connections'] extends Set<infer Item> ? Item : never;

export async function startMailCatcher(): Promise<MailCatcher> {
  const catcher = new MailCatcher();
  await catcher.listenAgain();
  return catcher;
}

export class MailCatcher {
  /** Oldest first; the list is live. */
  readonly mails: CaughtMail[] = [];
  /** Connections since the start, and those reset by a `cut`. */
  readonly counts = { connections: 0, cut: 0 };
  readonly #sockets = new Map<number, Socket>();
  #choose: FaultChoice = () => undefined;
  #server: SMTPServer | undefined;
  #port = 0;

  get smtpUrl(): string {
    return `smtp://${LOOPBACK}:${this.#port}`;
  }

  /** Finds mails by envelope recipient; capitals do not matter. */
  mailsTo(address: string): CaughtMail[] {
    const wanted = address.toLowerCase();
    return this.mails.filter(({ envelopeTo }) =>
      envelopeTo.some((recipient) => recipient.toLowerCase() === wanted),
    );
  }

  /** Resolves to the first mail that fits, kept or coming. */
  waitForMail(fits: (mail: CaughtMail) => boolean, timeoutMs: number): Promise<CaughtMail> {
    return eventually('a mail that fits', () => this.mails.find(fits), timeoutMs);
  }

  /** Applies to all sessions until it is set again; hung sessions stay hung. */
  setFault(fault: SmtpFault | FaultChoice | undefined): void {
    this.#choose = typeof fault === 'function' ? fault : () => fault;
  }

  clear(): void {
    this.mails.length = 0;
  }

  /** Refuses connections and destroys the open ones. */
  async stopListening(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    await new Promise<void>((resolve) => {
      server.close(resolve);
      for (const socket of this.#sockets.values()) socket.destroy();
    });
  }

  /** Listens on the same port; rejects if another process has taken it. */
  async listenAgain(): Promise<void> {
    if (this.#server !== undefined) return;
    const server = this.#build();
    server.on('error', () => undefined);
    this.#port = await listen(server.server, this.#port);
    this.#server = server;
  }

  close(): Promise<void> {
    return this.stopListening();
  }

  #build(): SMTPServer {
    const server = new SMTPServer({
      name: 'mail-catcher',
      authOptional: true,
      allowInsecureAuth: true,
      disabledCommands: ['STARTTLS'],
      disableReverseLookup: true,
      socketTimeout: IDLE_MS,
      logger: false,
      onConnect: (session, reply) => this.#answer('connect', envelopeOf(session), reply),
      onAuth: ({ username = 'anyone' }, session, reply) =>
        this.#answer('auth', envelopeOf(session), (error) =>
          error ? reply(error) : reply(null, { user: username }),
        ),
      onMailFrom: (_, session, reply) => this.#answer('mail', envelopeOf(session), reply),
      onRcptTo: ({ address }, session, reply) => {
        const { rcptTo } = envelopeOf(session);
        this.#answer('rcpt', { rcptTo: [...rcptTo, address] }, reply);
      },
      onData: (stream, session, reply) => {
        this.#receive(stream, session, reply).catch(() => undefined);
      },
    });
    server.server.on('connection', (socket: Socket) => {
      this.counts.connections += 1;
      const port = socket.remotePort ?? 0;
      this.#sockets.set(port, socket);
      socket.once('close', () => this.#sockets.delete(port));
    });
    const connect = server.connect.bind(server);
    server.connect = (socket, options) => {
      connect(socket, options);
      for (const connection of server.connections)
        if (connection.remotePort === socket.remotePort) this.#adapt(connection);
    };
    return server;
  }

  /** Adds what smtp-server has no option for. */
  #adapt(connection: Connection): void {
    // smtp-server waits 100 ms before each greeting.
    const greet = connection.connectionReady.bind(connection);
    connection.connectionReady = () => undefined;
    setImmediate(greet);
    // smtp-server has no hook before the 354 reply.
    const startData = connection.handler_DATA.bind(connection);
    connection.handler_DATA = (command, done) =>
      this.#answer('data-command', envelopeOf(connection.session), (error) => {
        if (!(error instanceof Refusal)) return startData(command, done);
        connection.send(error.responseCode, error.message);
        done();
      });
  }

  #faultAt(phase: SmtpPhase, envelope: Envelope): SmtpFault | undefined {
    const fault = this.#choose(envelope);
    return fault?.at === phase ? fault : undefined;
  }

  #answer(phase: SmtpPhase, envelope: Envelope, reply: Reply): void {
    give(this.#faultAt(phase, envelope), reply);
  }

  async #receive(
    stream: SMTPServerDataStream,
    session: SMTPServerSession,
    reply: Reply,
  ): Promise<void> {
    const envelope = envelopeOf(session);
    const socket = this.#sockets.get(session.remotePort);
    const mail = await parsed(await buffer(stream), envelope.rcptTo);
    const fault = this.#faultAt('data', envelope);
    if (fault !== undefined && 'cut' in fault) {
      if (fault.cut === 'after-store') this.mails.push(mail);
      this.counts.cut += 1;
      socket?.resetAndDestroy();
      return;
    }
    // Kept before the 250 is sent, so that a client with an answer finds the mail. An ended
    // connection gets neither.
    if (fault === undefined && socket?.destroyed === false) this.mails.push(mail);
    give(fault, reply);
  }
}

/** The form of error that smtp-server sends as an answer. */
class Refusal extends Error {
  readonly responseCode: number;

  constructor({ code, message }: { readonly code: number; readonly message: string }) {
    super(message);
    this.responseCode = code;
  }
}

/** A hang is a reply that never comes. */
function give(fault: SmtpFault | undefined, reply: Reply): void {
  if (fault === undefined) reply();
  else if ('answer' in fault) reply(new Refusal(fault.answer));
}

const envelopeOf = ({ envelope }: SMTPServerSession): Envelope => ({
  rcptTo: envelope.rcptTo.map(({ address }) => address),
});

async function parsed(content: Buffer, envelopeTo: readonly string[]) {
  const email = await PostalMime.parse(content);
  const text = email.text ?? '';
  return {
    receivedAt: new Date(),
    /** Accepted addresses of RCPT TO, in order. */
    envelopeTo,
    /** The header's value, with angle brackets. */
    messageId: email.messageId ?? '',
    subject: email.subject ?? '',
    fromName: email.from?.name ?? '',
    to: (email.to ?? []).flatMap(({ address }) => address ?? []),
    text,
    html: email.html ?? '',
    links: (text.match(/https?:\/\/[^\s<>"'`()[\]{}]+/g) ?? []) as readonly string[],
    headers: Object.fromEntries(email.headers.map(({ key, value }) => [key, value])) as Readonly<
      Record<string, string>
    >,
  };
}
