/** A TCP proxy that delays, holds, cuts or changes what goes to a store. */
import { connect, createServer, type Socket } from 'node:net';
import { listen } from './listen.ts';

export type TcpProxy = Awaited<ReturnType<typeof startTcpProxy>>;

/** What one connection passes on, in each direction. */
export interface Filter {
  toStore(bytes: Buffer): readonly Buffer[];
  toClient(bytes: Buffer): readonly Buffer[];
}

const unchanged = (): Filter => ({ toStore: (bytes) => [bytes], toClient: (bytes) => [bytes] });

/** `random` returns 0 to 1, for the delays. `filterOf` makes the filter of a connection. */
export async function startTcpProxy(
  url: string,
  random: () => number = Math.random,
  filterOf: (client: Socket) => Filter = unchanged,
) {
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

  /** Runs actions in order, each after its delay. */
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
    const filter = filterOf(client);
    client.on('data', (bytes: Buffer) => {
      for (const one of filter.toStore(bytes)) {
        if (holding) pair.held.push(one);
        else toStore(() => write(store, one));
      }
    });
    store.on('data', (bytes: Buffer) => {
      if (pair.deaf) return;
      for (const one of filter.toClient(bytes)) toClient(() => write(client, one));
    });
    client.on('error', () => undefined);
    store.on('error', () => client.resetAndDestroy());
    // Bytes before the end arrive first, also held ones: a client that gave up may still have
    // inserted.
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
    /** Passes bytes in both directions, with those that were held. */
    pass() {
      [holding, parking] = [false, false];
      for (const client of parked.splice(0)) if (!client.destroyed) connectToStore(client);
      for (const pair of pairs) for (const bytes of pair.held.splice(0)) write(pair.store, bytes);
    },
    /** Delays each piece by `least` to `most` milliseconds in each direction. */
    delay(newLeast: number, newMost: number) {
      [least, most] = [newLeast, newMost];
    },
    /** Holds what clients send until `pass()`, even if they close their connection before. */
    holdRequests() {
      holding = true;
    },
    /** New connections reach the store only after `pass()`. */
    park() {
      parking = true;
    },
    /** Resets open connections on the client's side; bytes already sent still reach the store. */
    cut() {
      for (const { client } of pairs) client.resetAndDestroy();
    },
    /** Passes no more answers on open connections; new ones work. */
    deafen() {
      for (const pair of pairs) pair.deaf = true;
    },
    /** Sends new connections to this store. */
    redirect(newUrl: string) {
      target = new URL(newUrl);
    },
    heldBytes: () =>
      [...pairs].flatMap((pair) => pair.held).reduce((sum, bytes) => sum + bytes.length, 0),
    close: () =>
      new Promise<void>((resolve) => {
        for (const client of parked) client.destroy();
        for (const { client, store } of pairs) {
          client.destroy();
          store.destroy();
        }
        server.close(() => resolve());
      }),
  };
}
