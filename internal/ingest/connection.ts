/**
 * What a connection is in the middle of: how many answers it waits for, whether its framing is
 * broken, whether it closes.
 *
 * Node tells only the server of broken framing. The requests already begun on that connection must
 * hear of it, too, and get their own answers: an answer to the breakage itself would be read as
 * theirs.
 */
import { Socket } from 'node:net';
import { LINGER_UNREAD_MS, MAX_PIPELINED } from './limits.ts';

interface Progress {
  /** Requests not answered yet; more than one where the partner pipelines. */
  answering: number;
  broken: boolean;
  /**
   * Whether the next answer is the last one: nothing that comes behind it is a request any more.
   */
  closing: boolean;
  readonly readers: Set<() => void>;
}

/** What closing needs to know of the body that is still on its way. */
export interface Dropped {
  /** Calls back once nothing more of the body is read: at its end (`whole`) or at a bound. */
  whenEnded(call: (how: 'whole' | 'cut_off') => void): void;
}

const connections = new WeakMap<Socket, Progress>();

function progressOf(socket: Socket): Progress {
  let progress = connections.get(socket);
  if (progress === undefined) {
    progress = { answering: 0, broken: false, closing: false, readers: new Set() };
    connections.set(socket, progress);
  }
  return progress;
}

/**
 * Whether the request may be served. `too_many` wait on this connection already: it has to go, and
 * with it what it sent.
 */
export function requestBegins(socket: Socket): 'served' | 'too_many' | 'closing' {
  const progress = progressOf(socket);
  progress.answering += 1;
  if (progress.closing) return 'closing';
  return progress.answering - 1 > MAX_PIPELINED ? 'too_many' : 'served';
}

/** The last answer on a broken connection also ends it: nothing can be read there any more. */
export function requestEnds(socket: Socket): void {
  const progress = connections.get(socket);
  if (progress === undefined) return;
  progress.answering -= 1;
  if (progress.broken && progress.answering === 0) socket.destroySoon();
}

export function isAnswering(socket: Socket): boolean {
  return progressOf(socket).answering > 0;
}

/**
 * Whether the last answer here is decided: how the connection ends is no fault of HTTP any more.
 */
export function isClosing(socket: Socket): boolean {
  return connections.get(socket)?.closing === true;
}

/**
 * Tells whoever reads a body on `socket` that no more will come; true when requests are still to be
 * answered there.
 */
export function breakOff(socket: Socket): boolean {
  const progress = progressOf(socket);
  progress.broken = true;
  for (const tell of progress.readers) tell();
  return progress.answering > 0;
}

/**
 * Calls `tell` when `socket`'s framing breaks, at once if it has; gives the way to stop listening.
 */
export function onBreak(socket: Socket, tell: () => void): () => void {
  const progress = progressOf(socket);
  progress.readers.add(tell);
  if (progress.broken) tell();
  return () => progress.readers.delete(tell);
}

/**
 * Makes the next answer, which has to say `Connection: close`, the last one here, and closes
 * lingeringly after it (RFC 9112 §9.6): the rest of `body` is read and dropped within its bounds,
 * because closing with bytes unread is a reset, which can destroy the answer before the partner
 * reads it.
 */
export function closeAfterAnswer(socket: Socket, body: Dropped): void {
  progressOf(socket).closing = true;
  // Node calls this when the last answer is on its way.
  socket.destroySoon = () => {
    socket.end();
    body.whenEnded((how) => {
      if (how === 'whole') Socket.prototype.destroySoon.call(socket);
      else setTimeout(() => socket.destroy(), LINGER_UNREAD_MS).unref();
    });
  };
}
