/** One member of the played set: passes each message of a driver on. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { messageCutter, requestOf, responseTo, type Request } from './wire.ts';
import { listen } from '../listen.ts';

export interface Certificate {
  readonly key: Buffer;
  readonly cert: Buffer;
}

/** A driver's connection, and its own connection to the store. */
export interface Line {
  reply(bytes: Buffer): void;
  /** Passes a request on; resolves with its answer, rejects if none will come. */
  forward(request: Pick<Request, 'id' | 'bytes'>): Promise<Buffer>;
  readonly closed: boolean;
}

export interface MemberOptions {
  readonly store: { readonly host: string; readonly port: number };
  readonly certificate: Certificate | undefined;
  handle(request: Request, line: Line): Promise<void>;
}

export class Member {
  readonly #options: MemberOptions;
  readonly #server: Server;
  readonly #lines = new Set<
    Line & { readonly socket: Socket; readonly store: Socket; flush(): void }
  >();
  #parted = false;

  constructor(options: MemberOptions) {
    this.#options = options;
    const { certificate } = options;
    this.#server =
      certificate === undefined
        ? createServer({ noDelay: true }, (socket) => this.#accept(socket))
        : createTlsServer({ ...certificate, noDelay: true }, (socket) => this.#accept(socket));
  }

  listen(): Promise<number> {
    return listen(this.#server);
  }

  /** Stops both directions; bytes on their way arrive after `join()`, also of ended connections. */
  part(): void {
    this.#parted = true;
  }

  join(): void {
    this.#parted = false;
    for (const line of this.#lines) line.flush();
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      for (const { socket, store } of this.#lines) {
        socket.destroy();
        store.destroy();
      }
      this.#server.close(() => resolve());
    });
  }

  #accept(socket: Socket): void {
    const store = connect({ ...this.#options.store, noDelay: true });
    const answers = new Map<
      number,
      { resolve: (reply: Buffer) => void; reject: (error: Error) => void }
    >();
    const held: (() => void)[] = [];
    const pass = (action: () => void): void => void (this.#parted ? held.push(action) : action());
    const line = {
      socket,
      store,
      get closed() {
        return socket.destroyed;
      },
      reply: (bytes: Buffer) => pass(() => void (socket.destroyed || socket.write(bytes))),
      forward: ({ id, bytes }: Pick<Request, 'id' | 'bytes'>) =>
        new Promise<Buffer>((resolve, reject) => {
          // The client ended before its request had its turn.
          if (store.writableEnded || store.destroyed) {
            reject(new Error('the connection has ended'));
            return;
          }
          answers.set(id, { resolve, reject });
          store.write(bytes);
        }),
      flush: () => {
        for (const action of held.splice(0)) action();
      },
    };
    this.#lines.add(line);
    const [fromDriver, fromStore] = [messageCutter(), messageCutter()];
    socket.on('data', (bytes: Buffer) => {
      for (const message of fromDriver(bytes)) {
        pass(
          () => void this.#options.handle(requestOf(message), line).catch(() => socket.destroy()),
        );
      }
    });
    store.on('data', (bytes: Buffer) => {
      for (const reply of fromStore(bytes)) {
        answers.get(responseTo(reply))?.resolve(reply);
        answers.delete(responseTo(reply));
      }
    });
    socket.on('error', () => undefined);
    store.on('error', () => socket.destroy());
    // Bytes before the end arrive before the end.
    socket.once('close', () => pass(() => store.end()));
    store.once('close', () => {
      for (const { reject } of answers.values())
        reject(new Error('the store closed the connection'));
      this.#lines.delete(line);
      socket.destroy();
    });
  }
}
