/**
 * Wakes whoever waits for a client socket to drain once it has closed instead; imported for this effect.
 *
 * The MongoDB driver (7.8) waits for `drain` when `write` says no, and no time-out or `close` ends that. `write` also says
 * no on a socket that is destroyed and has not told so yet, which is what a server's death looks like for a moment. A
 * monitor that asked just then waited for ever, its server stayed unknown, and the process answered 500 until its end,
 * beside others that were well; any other command left its caller without an answer.
 */
import { subscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';

/** On the socket, because whoever loads modules anew (Jest does, for each file) subscribes anew, too. */
const WAKES = Symbol.for('partner-ingest.wakes-on-close');

// Told of every client socket, TLS or not.
subscribe('net.client.socket', (message) => {
  const { socket } = message as { readonly socket: Socket & { [WAKES]?: true } };
  if (socket[WAKES] === true) return;
  socket[WAKES] = true;
  // After all who hear `close`, so that the driver knows by then what became of the connection.
  socket.once('close', () => process.nextTick(() => socket.emit('drain')));
});
