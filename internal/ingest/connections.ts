/** Limits the partner port's connections and replaces Node's own answers. */
import type { Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { answerConnect, type BrokenTools } from './broken-http.ts';
import type { AddressTest } from '../platform/networks.ts';
import { addressOf } from './client-address.ts';
import { isAnswering } from './connection.ts';
import { MAX_CONNECTIONS_PER_ADDRESS, MAX_HEADERS, UNREAD_LOOK_MS } from './limits.ts';
import type { Shares } from './shares.ts';

export function watchConnections(
  app: FastifyInstance,
  isProxy: AddressTest,
  connections: Shares['connections'],
  tools: BrokenTools,
): void {
  const { server } = app;
  server.maxHeadersCount = MAX_HEADERS;

  const byAddress = new Map<string, number>();
  server.on('connection', (socket: Socket) => {
    // Node removes its own listener at a CONNECT, and a socket error would end the process.
    socket.on('error', () => {});
    const address = addressOf(socket.remoteAddress ?? '');
    // It was reset before; what it sent could be limited and recorded only under a false address.
    if (address === undefined) {
      socket.destroy();
      return;
    }
    const { ip, limitKey } = address;
    connections.hold(socket, ['', limitKey]);
    socket.once('close', () => connections.release(socket));
    if (isProxy(ip)) return;
    const count = (byAddress.get(limitKey) ?? 0) + 1;
    byAddress.set(limitKey, count);
    socket.once('close', () => {
      const left = (byAddress.get(limitKey) ?? 1) - 1;
      if (left === 0) byAddress.delete(limitKey);
      else byAddress.set(limitKey, left);
    });
    if (count <= MAX_CONNECTIONS_PER_ADDRESS) return;
    tools.metrics.brokenHttp.inc({ kind: 'too_many_from_address' });
    socket.destroy();
  });
  const looking = closeUnread(connections, tools);
  // At close, Node stops the timer of a connection without a complete head, which would prolong a
  // drain.
  app.addHook('preClose', (done) => {
    clearInterval(looking);
    for (const socket of connections.holders) if (!isAnswering(socket)) socket.destroy();
    done();
  });

  // Node would answer 417 without a body; RFC 9110 §10.1.1 allows ignoring an unknown Expect.
  server.on('checkExpectation', (request, response) => server.emit('request', request, response));
  // Node would send 100 before the key is checked.
  server.on('checkContinue', (request, response) => server.emit('request', request, response));
  server.on('connect', (_request, socket) => answerConnect(socket as Socket, tools));
}

/** A connection with an unread answer never gives way, so its client could keep it. */
function closeUnread(connections: Shares['connections'], { metrics }: BrokenTools): NodeJS.Timeout {
  let before = new Map<Socket, number>();
  return setInterval(() => {
    const now = new Map<Socket, number>();
    for (const socket of connections.holders) {
      if (socket.writableLength === 0) continue;
      const taken = socket.bytesWritten - socket.writableLength;
      now.set(socket, taken);
      if (before.get(socket) !== taken) continue;
      metrics.brokenHttp.inc({ kind: 'answer_unread' });
      socket.destroy();
    }
    before = now;
  }, UNREAD_LOOK_MS);
}
