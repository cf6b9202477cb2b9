// The SMTP side of the mail catcher: a real server on one port that can be told to misbehave.
import type { Server, Socket } from 'node:net';
import { SMTPServer, type SMTPServerDataStream, type SMTPServerSession } from 'smtp-server';
import { parseMail, type Envelope, type Mailbox, type ParsedMail } from './mailbox.ts';

/** One SMTP reply, for example `{ code: 550, message: '5.1.1 no such user' }`. */
export interface SmtpAnswer {
  code: number;
  message: string;
}

/**
 * Moments at which the server can misbehave. `data-command` is the reply to the DATA command,
 * before any content; `data` is the reply to the final dot.
 */
export type SmtpPhase = 'connect' | 'auth' | 'mail' | 'rcpt' | 'data-command' | 'data';

/**
 * What to do instead of the normal reply at one phase: answer something else (the message is not
 * kept), never answer (not kept), or read the whole message and reset the connection, the message
 * kept or not.
 */
export type SmtpFault =
  | { at: SmtpPhase; answer: SmtpAnswer }
  | { at: SmtpPhase; hang: true }
  | { at: 'data'; cut: 'before-store' | 'after-store' };

/**
 * The fault for one session; it is asked at each phase with what the session has said until then.
 */
export type FaultChoice = (session: Envelope) => SmtpFault | undefined;

/** What the SMTP side saw since the start. */
export interface SmtpCounts {
  /** TCP connections, also those answered with a fault. */
  connections: number;
  /** Messages kept and answered with 250. */
  accepted: number;
  /** Negative answers, from a fault or because the message was too big or unreadable. */
  refused: number;
  /** Connections reset by a `cut` fault. */
  cut: number;
}

/** Largest message taken: 1 MiB, far above the one transactional mail this system sends. */
const MESSAGE_BYTES = 1_024 * 1_024;

/** Connections open at once; a pool has a handful, and more than this means that one leaks. */
const CONNECTIONS = 256;

/**
 * Idle time until the server gives up. Longer than the ten minutes a client waits, so a hang stays
 * a hang.
 */
const IDLE_MS = 15 * 60_000;

/** The reply when the message cannot be parsed. */
const UNREADABLE: SmtpAnswer = { code: 554, message: '5.6.0 message cannot be parsed' };

type Reply = (error?: Error | null) => void;
type Connection = SMTPServer['connections'] extends Set<infer Item> ? Item : never;

/** A listener on one port; it can go away and come back on the same port. */
export class SmtpListener {
  readonly counts: SmtpCounts = { connections: 0, accepted: 0, refused: 0, cut: 0 };
  readonly #mailbox: Mailbox;
  readonly #host: string;
  readonly #sockets = new Map<number, Socket>();
  #chooseFault: FaultChoice = () => undefined;
  #port: number;
  #server: SMTPServer | undefined;

  constructor(mailbox: Mailbox, host: string, port: number) {
    this.#mailbox = mailbox;
    this.#host = host;
    this.#port = port;
  }

  /** The port asked for, or after the first `listen` the one the system gave. */
  get port(): number {
    return this.#port;
  }

  setFault(fault: SmtpFault | FaultChoice | undefined): void {
    this.#chooseFault = typeof fault === 'function' ? fault : () => fault;
  }

  /** Rejects when the port is taken. Does nothing while listening. */
  async listen(): Promise<void> {
    if (this.#server !== undefined) return;
    const server = this.#build();
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(this.#port, this.#host, () => {
        server.off('error', reject);
        resolve();
      });
    });
    // Errors of single connections arrive here too (a client that resets, for one); they are the
    // client's affair.
    server.on('error', () => undefined);
    this.#port = portOf(server.server);
    this.#server = server;
  }

  /** Refuses new connections and destroys the open ones. Does nothing while not listening. */
  async stop(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    await new Promise<void>((resolve) => {
      server.close(resolve);
      for (const socket of this.#sockets.values()) socket.destroy();
    });
  }

  #build(): SMTPServer {
    const server = new SMTPServer({
      name: 'mail-catcher',
      authOptional: true,
      allowInsecureAuth: true,
      disabledCommands: ['STARTTLS'],
      disableReverseLookup: true,
      size: MESSAGE_BYTES,
      rejectOversized: true,
      maxClients: CONNECTIONS,
      socketTimeout: IDLE_MS,
      logger: false,
      onConnect: (session, reply) => this.#answer('connect', envelopeOf(session), reply),
      onAuth: (auth, session, reply) =>
        this.#answer('auth', envelopeOf(session), (error) =>
          error ? reply(error) : reply(null, { user: auth.username ?? 'anyone' }),
        ),
      onMailFrom: (address, session, reply) =>
        this.#answer('mail', { ...envelopeOf(session), mailFrom: address.address }, reply),
      onRcptTo: (address, session, reply) => {
        const envelope = envelopeOf(session);
        this.#answer('rcpt', { ...envelope, rcptTo: [...envelope.rcptTo, address.address] }, reply);
      },
      onData: (stream, session, reply) => {
        this.#receive(stream, session, reply).catch((error: unknown) => reply(asError(error)));
      },
    });
    server.server.on('connection', (socket: Socket) => this.#remember(socket));
    const connect = server.connect.bind(server);
    server.connect = (socket, options) => {
      connect(socket, options);
      for (const connection of server.connections) {
        if (connection.remotePort === socket.remotePort) this.#adapt(connection);
      }
    };
    return server;
  }

  #remember(socket: Socket): void {
    this.counts.connections += 1;
    const port = socket.remotePort;
    if (port === undefined) return;
    this.#sockets.set(port, socket);
    socket.once('close', () => this.#sockets.delete(port));
  }

  /** Gives the reply of a phase that a fault may change; a hang is a reply that is never given. */
  #answer(phase: SmtpPhase, envelope: Envelope, reply: Reply): void {
    const fault = this.#faultAt(phase, envelope);
    if (fault === undefined) reply();
    else if ('answer' in fault) reply(this.#refusal(fault.answer));
  }

  /** What smtp-server has no option for. */
  #adapt(connection: Connection): void {
    // It waits 100 ms before each greeting, to catch clients that talk too early, which would be
    // most of what a test waits for. The greeting is given at once, and the later call of its timer
    // does nothing.
    const greet = connection.connectionReady.bind(connection);
    connection.connectionReady = () => undefined;
    setImmediate(greet);
    // It has no hook before the 354 reply.
    const startData = connection.handler_DATA.bind(connection);
    connection.handler_DATA = (command, done) => {
      const fault = this.#faultAt('data-command', envelopeOf(connection.session));
      if (fault === undefined) {
        startData(command, done);
      } else if ('answer' in fault) {
        const { responseCode, message } = this.#refusal(fault.answer);
        connection.send(responseCode, message);
        done();
      }
    };
  }

  async #receive(
    stream: SMTPServerDataStream,
    session: SMTPServerSession,
    reply: Reply,
  ): Promise<void> {
    const envelope = envelopeOf(session);
    const socket = this.#sockets.get(session.remotePort);
    const source = await readMessage(stream);
    if (source === 'gone') return;
    if (source === 'too-big') {
      // smtp-server answers 552 by itself (rejectOversized); the reply only ends the exchange.
      this.counts.refused += 1;
      reply();
      return;
    }
    const parsed = await parseMail(source).catch(() => undefined);
    const fault = this.#faultAt('data', envelope);
    if (fault !== undefined && 'cut' in fault) {
      this.#cut(fault.cut === 'after-store' ? parsed : undefined, envelope, socket);
    } else if (fault !== undefined && 'answer' in fault) {
      reply(this.#refusal(fault.answer));
    } else if (fault === undefined && parsed === undefined) {
      reply(this.#refusal(UNREADABLE));
    } else if (fault === undefined && parsed !== undefined && socket?.destroyed === false) {
      // Kept before the 250 leaves, so a client that has its answer finds the mail. A connection
      // that went away while the message was parsed gets neither: "kept" and "answered" differ only
      // when a fault says so.
      this.counts.accepted += 1;
      this.#mailbox.add(parsed, envelope);
      reply();
    }
  }

  #cut(kept: ParsedMail | undefined, envelope: Envelope, socket: Socket | undefined): void {
    if (kept !== undefined) this.#mailbox.add(kept, envelope);
    this.counts.cut += 1;
    socket?.resetAndDestroy();
  }

  #faultAt(phase: SmtpPhase, envelope: Envelope): SmtpFault | undefined {
    try {
      const fault = this.#chooseFault(envelope);
      return fault?.at === phase ? fault : undefined;
    } catch (error) {
      // A mistake in a test's function is told to the client, instead of ending the process from
      // inside a socket.
      return {
        at: phase,
        answer: { code: 451, message: `fault function failed: ${asError(error).message}` },
      };
    }
  }

  #refusal(answer: SmtpAnswer): Refusal {
    this.counts.refused += 1;
    return new Refusal(answer);
  }
}

/** The error form in which smtp-server takes a negative answer. */
class Refusal extends Error {
  readonly responseCode: number;

  constructor(answer: SmtpAnswer) {
    super(answer.message);
    this.responseCode = answer.code;
  }
}

function envelopeOf(session: SMTPServerSession): Envelope {
  const { envelope } = session;
  return {
    mailFrom: envelope.mailFrom ? envelope.mailFrom.address : '',
    rcptTo: envelope.rcptTo.map((recipient) => recipient.address),
  };
}

/**
 * Reads to the end in any case (the dot must be reached before a reply), but buffers no more than
 * the limit.
 */
async function readMessage(stream: SMTPServerDataStream): Promise<Buffer | 'gone' | 'too-big'> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of stream) {
      if (stream.sizeExceeded) chunks.length = 0;
      else chunks.push(chunk);
    }
  } catch {
    return 'gone';
  }
  return stream.sizeExceeded ? 'too-big' : Buffer.concat(chunks);
}

/** The port a TCP server listens on. */
export function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string')
    throw new Error('the server does not listen on a TCP port');
  return address.port;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
