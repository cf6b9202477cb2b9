/**
 * Ends a wait for `drain` on a client socket that closes instead; imported for this effect.
 *
 * The MongoDB driver (7.8) waits for `drain` when `write` returns false, and neither a time-out nor
 * `close` ends that wait. `write` also returns false on a socket that is destroyed but has not
 * emitted `close` yet; this happens briefly when a server dies. A health check started at that
 * moment never returns: its server stays unknown, and the process answers 500 until it ends. Any
 * other command leaves its caller without an answer.
 */
import { channel } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { nextTick } from 'node:process';

/**
 * On the channel, because Jest loads a module again for each test file: a second subscription would
 * do the same, and never end.
 */
const WAKES = Symbol.for('partner-ingest.wakes-on-close');

/** Gets every client socket, TLS or not. */
const sockets: ReturnType<typeof channel> & { [WAKES]?: true } = channel('net.client.socket');
if (sockets[WAKES] !== true) {
  sockets[WAKES] = true;
  sockets.subscribe((message) => {
    const { socket } = message as { readonly socket: Socket };
    // After all listeners of `close`, so that the driver has marked the connection as closed.
    socket.once('close', () => nextTick(() => socket.emit('drain')));
  });
}
