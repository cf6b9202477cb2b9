/**
 * What is used of MongoDB's driver (7.8) beyond its documentation. If a version changes it,
 * the test beside this file fails, and for an index `test/integration/mongo-indexes.test.ts`.
 *
 * On import, emits `drain` on each client socket that closes, so that no write waits forever. The
 * driver waits for `drain` after `write` returns false, even if the socket closes. `write` also
 * returns false on a destroyed socket that has not emitted `close` yet. A health check on it would
 * never return, and the process would answer 500 until it ends.
 */
import { channel } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { nextTick } from 'node:process';
import { MongoServerSelectionError, type CreateIndexesOptions } from 'mongodb';

/** Jest loads a module again for each test file; the mark prevents a second subscription. */
const WAKES = Symbol.for('partner-ingest.wakes-on-close');

const sockets: ReturnType<typeof channel> & { [WAKES]?: true } = channel('net.client.socket');
if (sockets[WAKES] !== true) {
  sockets[WAKES] = true;
  sockets.subscribe((message) => {
    const { socket } = message as { readonly socket: Socket };
    // The driver's own listeners of `close` run first and mark the connection closed.
    socket.once('close', () => nextTick(() => socket.emit('drain')));
  });
}

/** False for errors that occur before anything is sent. */
export function wasSent(error: unknown): boolean {
  if (error instanceof MongoServerSelectionError) return false;
  const name = error instanceof Error ? error.name : '';
  return ![
    'MongoPoolClearedError',
    'MongoWaitQueueTimeoutError',
    'MongoPoolClosedError',
    'MongoTopologyClosedError',
  ].includes(name);
}

/** For a command that takes long. The driver uses this option, although its types omit it. */
export const answeredWithin = (
  socketTimeoutMS: number,
): CreateIndexesOptions & { readonly socketTimeoutMS: number } => ({ socketTimeoutMS });
