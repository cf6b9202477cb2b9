/** A connection that can be harmed on purpose: stands between a client and a store, and holds, mutes or cuts it. */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface TcpProxy {
  /** `url` with our host and port instead of the store's. */
  readonly url: string;
  /** Bytes in both directions; also what was held goes out now. */
  pass(): void;
  /** The store does not hear the client, until `pass()`: even if the client has gone by then. */
  holdRequests(): void;
  /** The store hears the client, but no answer comes back: ever. */
  dropReplies(): void;
  /** New connections reach the store only after `pass()`. */
  park(): void;
  /** Ends the connections that are open now. */
  cut(): void;
  /** Passes on no answer on the connections that are open now, ever; new ones work. */
  deafen(): void;
  /** Bytes held back by `holdRequests()`. */
  heldBytes(): number;
  close(): Promise<void>;
}

export async function startTcpProxy(url: string): Promise<TcpProxy> {
  const target = new URL(url);
  const pairs = new Set<{ readonly client: Socket; readonly store: Socket; held: Buffer[]; deaf: boolean }>();
  let holding = false;
  let muted = false;
  let parking = false;
  const parked: Socket[] = [];
  const connectToStore = (client: Socket): void => {
    const pair = { client, store: connect(Number(target.port), target.hostname), held: [] as Buffer[], deaf: false };
    pairs.add(pair);
    client.on('data', (bytes) => {
      if (holding) pair.held.push(bytes);
      else pair.store.write(bytes);
    });
    pair.store.on('data', (bytes) => {
      if (!muted && !pair.deaf) client.write(bytes);
    });
    const over = (): void => {
      // Bytes that are held go to the store even when the client has given up: that is a late insert.
      if (pair.held.length > 0) return;
      pairs.delete(pair);
      client.destroy();
      pair.store.destroy();
    };
    for (const socket of [client, pair.store]) socket.on('error', over).on('close', over);
    client.resume();
  };
  const server = createServer({ pauseOnConnect: true }, (client) => {
    if (!parking) {
      connectToStore(client);
      return;
    }
    client.on('error', () => client.destroy());
    parked.push(client);
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const own = new URL(url);
  own.hostname = '127.0.0.1';
  own.port = String((server.address() as AddressInfo).port);
  return {
    url: own.href,
    pass() {
      holding = false;
      muted = false;
      parking = false;
      for (const client of parked.splice(0)) if (!client.destroyed) connectToStore(client);
      for (const pair of pairs) for (const bytes of pair.held.splice(0)) pair.store.write(bytes);
    },
    holdRequests() {
      holding = true;
    },
    dropReplies() {
      muted = true;
    },
    park() {
      parking = true;
    },
    cut() {
      for (const { client } of pairs) client.destroy();
    },
    deafen() {
      for (const pair of pairs) pair.deaf = true;
    },
    heldBytes: () => [...pairs].flatMap((pair) => pair.held).reduce((sum, bytes) => sum + bytes.length, 0),
    close: () =>
      new Promise((resolve) => {
        for (const client of parked) client.destroy();
        for (const pair of pairs) {
          pair.client.destroy();
          pair.store.destroy();
        }
        server.close(() => resolve());
      }),
  };
}
