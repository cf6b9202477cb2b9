/** A proxy that keeps every command of MongoDB's clients and may change answers. */
import { connect, createServer, type Socket } from 'node:net';
import type { Document } from 'mongodb';
import { bodyOf, message, messageCutter, requestOf, responseTo } from './replica-set/wire.ts';
import { listen } from './listen.ts';

export interface MongoWire {
  readonly url: string;
  readonly commands: Document[];
  /** Changes each answer; undefined leaves it as it is. */
  answer(change: (command: Document, reply: Document) => Document | undefined): void;
  close(): Promise<void>;
}

export async function startMongoWire(url: string): Promise<MongoWire> {
  const target = new URL(url);
  const commands: Document[] = [];
  const sockets = new Set<Socket>();
  let change: Parameters<MongoWire['answer']>[0] = () => undefined;

  const server = createServer({ noDelay: true }, (client) => {
    const store = connect({ port: Number(target.port), host: target.hostname, noDelay: true });
    const asked = new Map<number, Document>();
    const pass = (from: Socket, to: Socket, through: (bytes: Buffer) => Buffer): void => {
      const cut = messageCutter();
      sockets.add(from);
      from.on('data', (bytes) => {
        for (const one of cut(bytes)) if (!to.destroyed) to.write(through(one));
      });
      from.on('error', () => to.destroy());
      from.once('close', () => {
        sockets.delete(from);
        to.destroySoon();
      });
    };
    pass(client, store, (bytes) => {
      const { id, command } = requestOf(bytes);
      commands.push(command);
      asked.set(id, command);
      return bytes;
    });
    pass(store, client, (bytes) => {
      const to = responseTo(bytes);
      const command = asked.get(to);
      asked.delete(to);
      // A greeting of the old form is passed on unchanged.
      const greeting =
        command === undefined || ['hello', 'ismaster', 'isMaster'].some((name) => name in command);
      const changed = greeting ? undefined : change(command, bodyOf(bytes));
      return changed === undefined ? bytes : message(changed, { to });
    });
  });
  const own = new URL(url);
  own.hostname = '127.0.0.1';
  own.port = String(await listen(server));
  return {
    url: own.href,
    commands,
    answer: (wanted) => {
      change = wanted;
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
