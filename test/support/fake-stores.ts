/** Servers that speak as much of a store's protocol as a client needs to be refused. */
import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TlsOptions } from 'node:tls';
import type { Document } from 'mongodb';
import { listen } from './listen.ts';
import { legacyReply, message, messageCutter, requestOf } from './replica-set/wire.ts';

export interface FakeServer {
  readonly port: number;
  /** `host:port`. */
  readonly at: string;
  close(): void;
}

/** Calls `serve` for each connection, which is of TLS with `tls`. */
export async function fakeServer(
  serve: (socket: Socket) => void,
  tls?: TlsOptions,
): Promise<FakeServer> {
  const sockets = new Set<Socket>();
  const opened = (socket: Socket): void => {
    sockets.add(socket);
    socket.on('error', () => undefined).on('close', () => sockets.delete(socket));
    serve(socket);
  };
  const server: Server = tls === undefined ? createServer(opened) : createTlsServer(tls, opened);
  server.on('tlsClientError', () => undefined);
  const port = await listen(server);
  return {
    port,
    at: `127.0.0.1:${port}`,
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

const OK = '+OK\r\n';
export const bulk = (text: string): string => `$${Buffer.byteLength(text)}\r\n${text}\r\n`;
export const array = (...items: readonly string[]): string =>
  `*${items.length}\r\n${items.join('')}`;

/** A Redis that answers each command, in small letters, by `answer`; by +OK if that is undefined. */
export const redisThat =
  (answer: (command: string, args: readonly string[]) => string | undefined) =>
  (socket: Socket): void => {
    socket.setEncoding('latin1').on('data', (text: string) => {
      const [inline = '', ...commands] = text.split(/^\*\d+\r\n/m);
      if (inline.startsWith('PING')) socket.write(answer('ping', []) ?? '+PONG\r\n');
      for (const said of commands) {
        const [command = '', ...args] = said.split('\r\n').filter((_, index) => index % 2 === 1);
        socket.write(answer(command.toLowerCase(), args) ?? OK);
      }
    });
  };

/** A MongoDB that answers `hello` with `hello` of its address, and other commands by `answer`. */
export const mongoThat =
  (hello: (me: string) => Document, answer: (command: Document) => Document = () => ({ ok: 1 })) =>
  (socket: Socket): void => {
    const cut = messageCutter();
    const usual = {
      ok: 1,
      helloOk: true,
      minWireVersion: 0,
      maxWireVersion: 21,
      maxBsonObjectSize: 16_777_216,
      maxMessageSizeBytes: 48_000_000,
      maxWriteBatchSize: 100_000,
      logicalSessionTimeoutMinutes: 30,
    };
    socket.on('data', (bytes: Buffer) => {
      for (const one of cut(bytes)) {
        const { id, command, legacy } = requestOf(one);
        const isHello = ['hello', 'ismaster', 'isMaster'].some((name) => name in command);
        const reply = isHello
          ? { ...usual, localTime: new Date(), ...hello(`127.0.0.1:${socket.localPort}`) }
          : answer(command);
        socket.write(legacy ? legacyReply(reply, id) : message(reply, { to: id }));
      }
    });
  };
