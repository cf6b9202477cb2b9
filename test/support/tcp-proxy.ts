/**
 * A connection that can be harmed on purpose: stands between a client and a store, and delays,
 * holds or cuts it.
 */
import { connect, createServer, type Socket } from 'node:net';
import { listen } from './listen.ts';

export interface TcpProxy {
  /** `url` with our host and port instead of the store's. */
  readonly url: string;
  /** Bytes in both directions; also what was held goes out now. */
  pass(): void;
  /**
   * Each piece takes `least` to `most` milliseconds in each direction, in its order; 0 and 0 is as
   * fast as can be.
   */
  delay(least: number, most: number): void;
  /** The store does not hear the client, until `pass()`: even if the client has gone by then. */
  holdRequests(): void;
  /** New connections reach the store only after `pass()`. */
  park(): void;
  /**
   * Resets the connections that are open now, on the client's side only: what it sent still reaches
   * the store.
   */
  cut(): void;
  /** Passes on no answer on the connections that are open now, ever; new ones work. */
  deafen(): void;
  /** New connections go to this store from now on; those that are open stay where they are. */
  redirect(url: string): void;
  /** Bytes held back by `holdRequests()`. */
  heldBytes(): number;
  close(): Promise<void>;
}

/** `random` gives the delays, from 0 to 1. */
export async function startTcpProxy(
  url: string,
  random: () => number = Math.random,
): Promise<TcpProxy> {
  let target = new URL(url);
  const pairs = new Set<{
    readonly client: Socket;
    readonly store: Socket;
    held: Buffer[];
    deaf: boolean;
  }>();
  const parked: Socket[] = [];
  let [holding, parking] = [false, false];
  let [least, most] = [0, 0];

  /** Runs actions in their order, each after its delay. */
  const inOrder = (): ((action: () => void) => void) => {
    let latest = 0;
    return (action) => {
      const now = performance.now();
      latest = Math.max(latest, now + least + random() * (most - least));
      if (latest <= now) action();
      else setTimeout(action, latest - now);
    };
  };
  const write = (to: Socket, bytes: Buffer): void => {
    if (!to.destroyed) to.write(bytes);
  };
  const connectToStore = (client: Socket): void => {
    const store = connect({ port: Number(target.port), host: target.hostname, noDelay: true });
    const pair = { client, store, held: [] as Buffer[], deaf: false };
    pairs.add(pair);
    const [toStore, toClient] = [inOrder(), inOrder()];
    client.on('data', (bytes) => {
      if (holding) pair.held.push(bytes);
      else toStore(() => write(store, bytes));
    });
    store.on('data', (bytes) => {
      if (!pair.deaf) toClient(() => write(client, bytes));
    });
    client.on('error', () => undefined);
    store.on('error', () => client.resetAndDestroy());
    // What came before the end arrives before the end, and what is held even later: so a client
    // that gave up may still have inserted something.
    client.once('close', () => toStore(() => pair.held.length === 0 && store.end()));
    store.once('close', () => {
      pairs.delete(pair);
      toClient(() => client.destroySoon());
    });
    client.resume();
  };
  const server = createServer({ pauseOnConnect: true, noDelay: true }, (client) => {
    if (!parking) {
      connectToStore(client);
      return;
    }
    client.on('error', () => client.destroy());
    parked.push(client);
  });
  const own = new URL(url);
  own.hostname = '127.0.0.1';
  own.port = String(await listen(server));
  return {
    url: own.href,
    pass() {
      [holding, parking] = [false, false];
      for (const client of parked.splice(0)) if (!client.destroyed) connectToStore(client);
      for (const pair of pairs) for (const bytes of pair.held.splice(0)) write(pair.store, bytes);
    },
    delay(newLeast, newMost) {
      [least, most] = [newLeast, newMost];
    },
    holdRequests() {
      holding = true;
    },
    park() {
      parking = true;
    },
    cut() {
      for (const { client } of pairs) client.resetAndDestroy();
    },
    deafen() {
      for (const pair of pairs) pair.deaf = true;
    },
    redirect(newUrl) {
      target = new URL(newUrl);
    },
    heldBytes: () =>
      [...pairs].flatMap((pair) => pair.held).reduce((sum, bytes) => sum + bytes.length, 0),
    close: () =>
      new Promise((resolve) => {
        for (const client of parked) client.destroy();
        for (const { client, store } of pairs) {
          client.destroy();
          store.destroy();
        }
        server.close(() => resolve());
      }),
  };
}
