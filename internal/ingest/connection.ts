/**
 * What a connection is in the middle of, for the moment its framing breaks.
 *
 * Node tells only the server of broken framing. The requests already begun on that connection must hear of it, too,
 * and get their own answers: an answer to the breakage itself would be read as theirs.
 */
import type { Socket } from 'node:net';
import { MAX_PIPELINED } from './limits.ts';

interface Progress {
  /** Requests not answered yet; more than one where the partner pipelines. */
  answering: number;
  broken: boolean;
  readonly readers: Set<() => void>;
}

const connections = new WeakMap<Socket, Progress>();
/** Requests that wait behind another one on their connection; of the whole process, whose memory they share. */
let pipelined = 0;

function progressOf(socket: Socket): Progress {
  const progress = connections.get(socket) ?? { answering: 0, broken: false, readers: new Set() };
  connections.set(socket, progress);
  return progress;
}

/** False when more requests wait behind others than may: this connection has to go, and with it what it sent. */
export function requestBegins(socket: Socket): boolean {
  const progress = progressOf(socket);
  progress.answering += 1;
  if (progress.answering === 1) return true;
  pipelined += 1;
  return pipelined <= MAX_PIPELINED;
}

/** The last answer on a broken connection also ends it: nothing can be read there any more. */
export function requestEnds(socket: Socket): void {
  const progress = connections.get(socket);
  if (progress === undefined) return;
  if (progress.answering > 1) pipelined -= 1;
  progress.answering -= 1;
  if (progress.broken && progress.answering === 0) socket.destroySoon();
}

/** Requests whose turn to be answered never came do not hear of the end themselves. */
export function connectionEnds(socket: Socket): void {
  pipelined -= Math.max(0, (connections.get(socket)?.answering ?? 0) - 1);
  connections.delete(socket);
}

export function isAnswering(socket: Socket): boolean {
  return progressOf(socket).answering > 0;
}

/** Tells whoever reads a body on `socket` that no more will come; true when requests are still to be answered there. */
export function breakOff(socket: Socket): boolean {
  const progress = progressOf(socket);
  progress.broken = true;
  for (const tell of progress.readers) tell();
  return progress.answering > 0;
}

/** Calls `tell` when `socket`'s framing breaks, at once if it has; gives the way to stop listening. */
export function onBreak(socket: Socket, tell: () => void): () => void {
  const progress = progressOf(socket);
  progress.readers.add(tell);
  if (progress.broken) tell();
  return () => progress.readers.delete(tell);
}
