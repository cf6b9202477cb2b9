/**
 * A connection that understands what MongoDB's clients say: keeps every command, and may change
 * what is answered.
 */
import { connect, createServer, type Socket } from 'node:net';
import type { Document } from 'mongodb';
import { bodyOf, message, messageCutter, requestOf, responseTo } from './replica-set/wire.ts';
import { listen } from './listen.ts';

export interface MongoWire {
  /** `url` with our host and port instead of the store's. */
  readonly url: string;
  /** Commands in the order they were sent. */
  readonly commands: Document[];
  /** From now on each answer is what `change` makes of it; undefined leaves it as it is. */
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
      // Greetings may be of an older form, and nobody changes those.
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
