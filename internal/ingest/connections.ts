/** Limits the partner port's connections and replaces Node's own answers. */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { pause } from '../platform/deadline.ts';
import { FairShares } from '../platform/fair-shares.ts';
import { answerBroken, answerConnect, type BrokenKind, type BrokenTools } from './broken-http.ts';
import type { ReadHop } from './client-address.ts';
import { Connection } from './connection.ts';
import { LAST_ANSWERS_MS, MAX_CONNECTIONS_PER_ADDRESS, MAX_HEADERS, SHARED } from './limits.ts';

/** A connection on which a written answer makes no progress between two looks is closed. */
const UNREAD_LOOK_MS = 10_000;

const LAST_LOOK_EVERY_MS = 20;

export class Connections {
  readonly #readHop: ReadHop;
  readonly #tools: BrokenTools;
  readonly #byAddress = new Map<string, number>();
  readonly #open = new FairShares<Connection>(
    SHARED.connections,
    (connection) => this.#destroy(connection, 'too_many_connections'),
    ({ mayBeClosed }) => mayBeClosed,
  );
  readonly #looking: NodeJS.Timeout;

  constructor(readHop: ReadHop, tools: BrokenTools) {
    this.#readHop = readHop;
    this.#tools = tools;
    // A connection with an unread answer never gives way, so its client could keep it.
    this.#looking = setInterval(() => {
      for (const connection of this.#open.holders)
        if (connection.isUnread()) this.#destroy(connection, 'answer_unread');
    }, UNREAD_LOOK_MS);
  }

  watch(server: Server): Server {
    server.maxHeadersCount = MAX_HEADERS;
    return (
      server
        .on('connection', (socket) => this.#accept(socket))
        .on('clientError', (error, socket) => answerBroken(error, socket as Socket, this.#tools))
        .on('connect', (_request, socket) => answerConnect(socket as Socket, this.#tools))
        // Node would answer 417 without a body; RFC 9110 §10.1.1 allows ignoring an unknown Expect.
        .on('checkExpectation', (request, answer) => server.emit('request', request, answer))
        // Node would send 100 before the key is checked.
        .on('checkContinue', (request, answer) => server.emit('request', request, answer))
    );
  }

  /**
   * Busy clients leave after an answer with `Connection: close`; closing between two requests would
   * reset the next one.
   */
  async close(): Promise<void> {
    const until = performance.now() + LAST_ANSWERS_MS;
    while ([...this.#open.holders].length > 0 && performance.now() < until)
      await pause(LAST_LOOK_EVERY_MS);
    clearInterval(this.#looking);
    // Node stops the timer of a connection without a complete head, which would prolong a drain.
    for (const { isAnswering, socket } of this.#open.holders) if (!isAnswering) socket.destroy();
  }

  #accept(socket: Socket): void {
    // Node removes its own listener at a CONNECT, and a socket error would end the process.
    socket.on('error', () => {});
    const peer = this.#readHop(socket.remoteAddress ?? '');
    // It was reset before; what it sent could be limited and recorded only under a false address.
    if (peer === undefined) {
      socket.destroy();
      return;
    }
    const connection = new Connection(socket, peer, this.#open);
    if (peer.isProxy) return;
    const { limitKey } = peer.client;
    const count = (this.#byAddress.get(limitKey) ?? 0) + 1;
    this.#byAddress.set(limitKey, count);
    socket.once('close', () => {
      const left = (this.#byAddress.get(limitKey) ?? 1) - 1;
      if (left === 0) this.#byAddress.delete(limitKey);
      else this.#byAddress.set(limitKey, left);
    });
    if (count > MAX_CONNECTIONS_PER_ADDRESS) this.#destroy(connection, 'too_many_from_address');
  }

  #destroy({ socket }: Connection, kind: BrokenKind): void {
    this.#tools.metrics.brokenHttp.inc({ kind });
    socket.destroy();
  }
}
