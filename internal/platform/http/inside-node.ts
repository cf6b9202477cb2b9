/**
 * What is used of Node beyond its documentation. If a version changes it,
 * the test beside this file fails.
 */
import { Socket } from 'node:net';

/** False if at most empty lines came since the last request (RFC 9112 §2.2). */
export function hasRequestBegun(socket: Socket): boolean {
  // Node has no other way to ask its parser; `finish` fails inside a request.
  const { parser } = socket as Socket & { parser?: { finish(): unknown } | null };
  return parser?.finish() !== undefined;
}

/** Calls `end` in place of what Node does after the last answer: `close` does that. */
export function afterLastAnswer(socket: Socket, end: (close: () => void) => void): void {
  socket.destroySoon = () => {
    socket.end();
    end(() => Socket.prototype.destroySoon.call(socket));
  };
}
