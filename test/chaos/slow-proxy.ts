/** Stands between the service and a store and makes the way long: every piece of data arrives later, in its order. */
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface SlowProxy {
  /** `url` with our host and port instead of the store's. */
  readonly url: string;
  /** Each piece takes `least` to `most` milliseconds in each direction; 0 and 0 is as fast as can be. */
  delay(least: number, most: number): void;
  /** Resets the connections that are open now, on the client's side only: what it sent still reaches the store. */
  cut(): void;
  close(): Promise<void>;
}

/** `random` gives the delays, from 0 to 1. */
export async function startSlowProxy(url: string, random: () => number): Promise<SlowProxy> {
  const target = new URL(url);
  const clients = new Set<Socket>();
  const all = new Set<Socket>();
  let [least, most] = [0, 0];

  const pass = (from: Socket, to: Socket): void => {
    let latest = 0;
    const later = (action: () => void): void => {
      const now = performance.now();
      latest = Math.max(latest, now + least + random() * (most - least));
      if (latest <= now) action();
      else setTimeout(action, latest - now);
    };
    from.on('data', (bytes) =>
      later(() => {
        if (!to.destroyed) to.write(bytes);
      }),
    );
    // What came before the end arrives before the end: so a late insert of a client that gave up is possible.
    from.on('close', () => later(() => to.end()));
    from.on('error', () => undefined);
  };
  const server = createServer({ noDelay: true }, (client) => {
    const store = connect({ port: Number(target.port), host: target.hostname, noDelay: true });
    clients.add(client);
    for (const socket of [client, store]) {
      all.add(socket);
      socket.once('close', () => all.delete(socket));
    }
    client.once('close', () => clients.delete(client));
    store.once('error', () => client.resetAndDestroy());
    store.once('close', () => client.destroySoon());
    pass(client, store);
    pass(store, client);
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  const own = new URL(url);
  own.hostname = '127.0.0.1';
  own.port = String((server.address() as AddressInfo).port);
  return {
    url: own.href,
    delay(newLeast, newMost) {
      [least, most] = [newLeast, newMost];
    },
    cut() {
      for (const client of clients) client.resetAndDestroy();
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of all) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
