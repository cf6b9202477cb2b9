/**
 * Ends a wait for `drain` on a client socket that closes instead; imported for this effect.
 *
 * The MongoDB driver (7.8) waits for `drain` when `write` returns false, and neither a time-out nor `close` ends that wait.
 * `write` also returns false on a socket that is destroyed but has not emitted `close` yet; this happens briefly when a
 * server dies. A health check started at that moment never returns: its server stays unknown, and the process answers 500
 * until it ends. Any other command leaves its caller without an answer.
 */
import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';

/** On the socket, because a module that is loaded again (by Jest, for each file) subscribes again. */
const WAKES = Symbol.for('partner-ingest.wakes-on-close');

// Called for every client socket, TLS or not.
subscribe('net.client.socket', (message) => {
  const { socket } = message as { readonly socket: Socket & { [WAKES]?: true } };
  if (socket[WAKES] === true) return;
  socket[WAKES] = true;
  // After all listeners of `close`, so that the driver has marked the connection as closed.
  socket.once('close', () => process.nextTick(() => socket.emit('drain')));
});
