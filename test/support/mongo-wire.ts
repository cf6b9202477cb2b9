/** A proxy that keeps every command of MongoDB's clients, may hold some and change answers. */
import { connect } from 'node:net';
import type { Document } from 'mongodb';
import { bodyOf, message, messageCutter, requestOf, responseTo } from './replica-set/wire.ts';
import { startTcpProxy } from './tcp-proxy.ts';

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

const GREETINGS = ['hello', 'ismaster', 'isMaster'];

export async function startMongoWire(url: string): Promise<MongoWire> {
  const commands: Document[] = [];
  let change: Parameters<MongoWire['answer']>[0] = () => undefined;
  let instead: Parameters<MongoWire['instead']>[0] = () => undefined;
  let holds: (command: Document) => boolean = () => false;
  let held: (() => Promise<void>)[] = [];

  const land = (bytes: Buffer): Promise<void> =>
    new Promise((resolve, reject) => {
      const { port, hostname: host } = new URL(url);
      const store = connect({ port: Number(port), host });
      store.on('error', reject);
      store.once('data', () => {
        store.destroy();
        resolve();
      });
      store.write(bytes);
    });

  const proxy = await startTcpProxy(url, undefined, (client) => {
    const asked = new Map<number, Document>();
    const [requestsIn, repliesIn] = [messageCutter(), messageCutter()];
    const passes = (bytes: Buffer): boolean => {
      const { id, command } = requestOf(bytes);
      commands.push(command);
      const answer = instead(command);
      if (answer !== undefined) client.write(message(answer, { to: id }));
      else if (holds(command)) held.push(() => land(bytes));
      else {
        asked.set(id, command);
        return true;
      }
      return false;
    };
    const changed = (bytes: Buffer): Buffer => {
      const to = responseTo(bytes);
      const command = asked.get(to);
      asked.delete(to);
      // A greeting of the old form is passed on unchanged.
      if (command === undefined || GREETINGS.some((name) => name in command)) return bytes;
      const reply = change(command, bodyOf(bytes));
      return reply === undefined ? bytes : message(reply, { to });
    };
    return {
      toStore: (bytes) => requestsIn(bytes).filter(passes),
      toClient: (bytes) => repliesIn(bytes).map(changed),
    };
  });
  return {
    url: proxy.url,
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
    close: () => proxy.close(),
  };
}
