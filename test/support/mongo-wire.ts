/** A proxy that keeps every command of MongoDB's clients, may hold some and change answers. */
import { connect, createServer, type Socket } from 'node:net';
import type { Document } from 'mongodb';
import { bodyOf, message, messageCutter, requestOf, responseTo } from './replica-set/wire.ts';
import { listen } from './listen.ts';

export interface MongoWire {
  readonly url: string;
  readonly commands: Document[];
  /** Changes each answer; undefined leaves it as it is. */
  answer(change: (command: Document, reply: Document) => Document | undefined): void;
  /** Answers commands without the store; undefined passes one on. */
  instead(answer: (command: Document) => Document | undefined): void;
  /**
   * Keeps back the commands that `holds` chooses. Each function of the list brings one to the store,
   * also if its client has gone.
   */
  hold(holds: (command: Document) => boolean): readonly (() => Promise<void>)[];
  close(): Promise<void>;
}

export async function startMongoWire(url: string): Promise<MongoWire> {
  const target = new URL(url);
  const commands: Document[] = [];
  const sockets = new Set<Socket>();
  let change: Parameters<MongoWire['answer']>[0] = () => undefined;
  let instead: Parameters<MongoWire['instead']>[0] = () => undefined;
  let holds: (command: Document) => boolean = () => false;
  let held: (() => Promise<void>)[] = [];

  const land = (bytes: Buffer): Promise<void> =>
    new Promise((resolve, reject) => {
      const store = connect({ port: Number(target.port), host: target.hostname });
      store.on('error', reject);
      store.once('data', () => {
        store.destroy();
        resolve();
      });
      store.write(bytes);
    });

  const server = createServer({ noDelay: true }, (client) => {
    const store = connect({ port: Number(target.port), host: target.hostname, noDelay: true });
    const asked = new Map<number, Document>();
    const pass = (
      from: Socket,
      to: Socket,
      through: (bytes: Buffer) => Buffer | undefined,
    ): void => {
      const cut = messageCutter();
      sockets.add(from);
      from.on('data', (bytes) => {
        for (const one of cut(bytes)) {
          const passed = through(one);
          if (passed !== undefined && !to.destroyed) to.write(passed);
        }
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
      const answer = instead(command);
      if (answer !== undefined) {
        client.write(message(answer, { to: id }));
        return undefined;
      }
      asked.set(id, command);
      if (!holds(command)) return bytes;
      held.push(() => land(bytes));
      return undefined;
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
    instead: (wanted) => {
      instead = wanted;
    },
    hold: (wanted) => {
      holds = wanted;
      held = [];
      return held;
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
