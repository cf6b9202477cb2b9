/**
 * On import, emits `drain` on each client socket that closes, so that no write waits forever.
 *
 * The MongoDB driver (7.8) waits for `drain` after `write` returns false, even if the socket
 * closes. `write` also returns false on a destroyed socket that has not emitted `close` yet. A
 * health check on it would never return, and the process would answer 500 until it ends.
 */
import { channel } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { nextTick } from 'node:process';

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
