/** A proxy that keeps every command of MongoDB's clients, may hold some and change answers. */
import { connect } from 'node:net';
import type { Document } from 'mongodb';
import { bodyOf, message, messageCutter, requestOf, responseTo } from './replica-set/wire.ts';
import { startTcpProxy } from './tcp-proxy.ts';

export type MongoWire = Awaited<ReturnType<typeof startMongoWire>>;

type Change = (command: Document, reply: Document) => Document | undefined;
type Instead = (command: Document) => Document | undefined;

const GREETINGS = ['hello', 'ismaster', 'isMaster'];

export async function startMongoWire(url: string) {
  const commands: Document[] = [];
  let change: Change = () => undefined;
  let instead: Instead = () => undefined;
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
    /** Changes each answer; undefined leaves it as it is. */
    answer: (wanted: Change) => {
      change = wanted;
    },
    /** Answers commands without the store; undefined passes one on. */
    instead: (wanted: Instead) => {
      instead = wanted;
    },
    /**
     * Keeps back the commands that `wanted` chooses. Each function of the list brings one to the
     * store, also if its client has gone.
     */
    hold: (wanted: (command: Document) => boolean) => {
      holds = wanted;
      held = [];
      return held as readonly (() => Promise<void>)[];
    },
    close: () => proxy.close(),
  };
}
