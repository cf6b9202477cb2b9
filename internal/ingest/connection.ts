/**
 * The state of a connection: unanswered requests, broken framing, closing.
 *
 * Node reports broken framing only to the server. Earlier requests are answered first, because the
 * client would take the error for one of their answers.
 */
import { Socket } from 'node:net';
import { LINGER_UNREAD_MS, MAX_PIPELINED } from './limits.ts';

interface Progress {
  answering: number;
  broken: boolean;
  /** The next answer is the last. */
  closing: boolean;
  readonly readers: Set<() => void>;
}

export interface Dropped {
  whenEnded(call: (how: BodyEnd) => void): void;
}

/** `cut_off`: the partner left, broke the framing, or sent too much. */
export type BodyEnd = 'whole' | 'cut_off' | 'too_slow';

const connections = new WeakMap<Socket, Progress>();

function progressOf(socket: Socket): Progress {
  let progress = connections.get(socket);
  if (progress === undefined) {
    progress = { answering: 0, broken: false, closing: false, readers: new Set() };
    connections.set(socket, progress);
  }
  return progress;
}

export function requestBegins(socket: Socket): 'served' | 'too_many' | 'closing' {
  const progress = progressOf(socket);
  progress.answering += 1;
  if (progress.closing) return 'closing';
  return progress.answering - 1 > MAX_PIPELINED ? 'too_many' : 'served';
}

export function requestEnds(socket: Socket): void {
  const progress = connections.get(socket);
  if (progress === undefined) return;
  progress.answering -= 1;
  if (progress.broken && progress.answering === 0) socket.destroySoon();
}

export function isAnswering(socket: Socket): boolean {
  return progressOf(socket).answering > 0;
}

/** True where nothing whole has come that waits for its answer. */
export function mayBeClosed(socket: Socket): boolean {
  const { answering, readers } = progressOf(socket);
  return answering === readers.size;
}

export function isClosing(socket: Socket): boolean {
  return connections.get(socket)?.closing === true;
}

/** False where at most empty lines came since the last request (RFC 9112 §2.2). */
export function hasBegun(socket: Socket): boolean {
  if (isAnswering(socket)) return true;
  // Node has no other way to ask its parser; what has begun has no end here.
  const { parser } = socket as Socket & { parser?: { finish(): unknown } | null };
  return parser?.finish() !== undefined;
}

/** Ends all bodies on `socket`; true if requests remain unanswered. */
export function breakOff(socket: Socket): boolean {
  const progress = progressOf(socket);
  progress.broken = true;
  for (const tell of progress.readers) tell();
  return progress.answering > 0;
}

export function onBreak(socket: Socket, tell: () => void): () => void {
  const progress = progressOf(socket);
  progress.readers.add(tell);
  if (progress.broken) tell();
  return () => progress.readers.delete(tell);
}

/**
 * Makes the next answer the last. Closing with unread bytes resets the connection and can destroy
 * the answer, so the rest of `body` is read within its bounds (RFC 9112 §9.6).
 */
export function closeAfterAnswer(socket: Socket, body: Dropped): void {
  progressOf(socket).closing = true;
  // Node calls this after the last answer.
  socket.destroySoon = () => {
    socket.end();
    body.whenEnded((how) => {
      if (how === 'whole') Socket.prototype.destroySoon.call(socket);
      else setTimeout(() => socket.destroy(), LINGER_UNREAD_MS).unref();
    });
  };
}
