/**
 * A connection of the partner port: whose it is, its unanswered requests, broken framing, closing.
 *
 * Node reports broken framing only to the server. Earlier requests are answered first, because the
 * client would take the error for one of their answers.
 */
import type { Socket } from 'node:net';
import type { FairShares } from '../platform/fair-shares.ts';
import type { Hop } from './client-address.ts';
import { MAX_PIPELINED } from './limits.ts';

const connections = new WeakMap<Socket, Connection>();

export class Connection {
  readonly socket: Socket;
  readonly peer: Hop;
  /** The next answer is the last. */
  isClosing = false;
  readonly #shares: FairShares<Connection>;
  #partnerId = '';
  #answering = 0;
  #broken = false;
  #taken: number | undefined;
  readonly #readers = new Set<() => void>();

  constructor(socket: Socket, peer: Hop, shares: FairShares<Connection>) {
    this.socket = socket;
    this.peer = peer;
    this.#shares = shares;
    connections.set(socket, this);
    shares.hold(this, ['', peer.client.limitKey]);
    socket.once('close', () => shares.release(this));
  }

  /** Of a socket of the partner port. */
  static of(socket: Socket): Connection {
    return connections.get(socket)!;
  }

  /** Until the key of a request is known, its connection is nobody's. */
  belongTo(partnerId: string): void {
    if (partnerId === this.#partnerId || this.socket.destroyed) return;
    this.#partnerId = partnerId;
    this.#shares.hold(this, [partnerId, this.peer.client.limitKey]);
  }

  requestBegins(): 'served' | 'too_many' | 'closing' {
    this.#answering += 1;
    if (this.isClosing) return 'closing';
    return this.#answering - 1 > MAX_PIPELINED ? 'too_many' : 'served';
  }

  requestEnds(): void {
    this.#answering -= 1;
    if (this.#broken && this.#answering === 0) this.socket.destroySoon();
  }

  get isAnswering(): boolean {
    return this.#answering > 0;
  }

  /** True where nothing whole has come that waits for its answer. */
  get mayBeClosed(): boolean {
    return this.#answering === this.#readers.size;
  }

  /** True if a written answer has made no progress since the last call. */
  isUnread(): boolean {
    const { bytesWritten, writableLength } = this.socket;
    const taken = writableLength === 0 ? undefined : bytesWritten - writableLength;
    const isUnread = taken !== undefined && taken === this.#taken;
    this.#taken = taken;
    return isUnread;
  }

  /** False where at most empty lines came since the last request (RFC 9112 §2.2). */
  get hasBegun(): boolean {
    if (this.isAnswering) return true;
    // Node has no other way to ask its parser; what has begun has no end here.
    const { parser } = this.socket as Socket & { parser?: { finish(): unknown } | null };
    return parser?.finish() !== undefined;
  }

  /** Ends all bodies; true if requests remain unanswered. */
  breakOff(): boolean {
    this.#broken = true;
    for (const tell of this.#readers) tell();
    return this.isAnswering;
  }

  onBreak(tell: () => void): () => void {
    this.#readers.add(tell);
    if (this.#broken) tell();
    return () => this.#readers.delete(tell);
  }
}
