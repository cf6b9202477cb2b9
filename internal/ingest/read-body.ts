/** Reads a request's body as raw bytes within bounds, and throws away what is beyond them. */
import type { IncomingMessage } from 'node:http';
import type { BodyRoom, RoomHolder } from './body-room.ts';
import { onBreak, type Dropped } from './connection.ts';
import {
  BODY_TIMEOUT_MS,
  DRAIN_MAX_BYTES,
  DRAIN_MAX_MS,
  EARLY_GRACE_MS,
  MAX_BODY_BYTES,
} from './limits.ts';

/**
 * How the body ended:
 * - `whole`: all of it is in `bytes`;
 * - `too_large`: `bytes` holds the first 65,000; the rest was drained within bounds;
 * - `cut_off`: the partner went away, took too long, or broke the framing; `bytes` holds what
 *   came;
 * - `no_room`: it had to give way to others; nothing is kept of it, and the rest was drained
 *   within bounds.
 */
export interface ReadBody {
  readonly end: 'whole' | 'too_large' | 'cut_off' | 'no_room';
  readonly bytes: Buffer;
  readonly received: number;
  /** Whether the whole request has been read, so that the connection can serve another one. */
  readonly reusable: boolean;
}

const NOTHING = Buffer.alloc(0);
/**
 * A body that comes in many pieces is gathered in a buffer of at least this size, which then grows
 * by doubling.
 */
const GATHER_BYTES = 1_024;

/**
 * A body on its way. It is taken in from the head of its request on, before anybody knows whether
 * it is wanted: Node would keep each piece as an object of its own until then, and pieces of one
 * byte make 20 MB of objects out of 65 kB.
 *
 * It holds its room until `release()` or `drop()`, also when it is whole: until then nobody else
 * counts its bytes.
 */
export class IncomingBody implements RoomHolder, Dropped {
  readonly #request: IncomingMessage;
  readonly #room: BodyRoom;
  readonly #stopListening: () => void;
  /** Called at the end, by whoever reads and by who closes the connection after it. */
  readonly #endListeners: ((how: 'whole' | 'cut_off') => void)[] = [];
  #ended: 'whole' | 'cut_off' | undefined;
  #timer: NodeJS.Timeout | undefined;
  #bytes: Buffer = NOTHING;
  #kept = 0;
  #received = 0;
  /** How much of it is kept: nothing once it is known that nobody wants it. */
  #keep = MAX_BODY_BYTES;
  #asked = false;
  #broken = false;
  #gaveWay = false;

  constructor(request: IncomingMessage, room: BodyRoom) {
    this.#request = request;
    this.#room = room;
    // What the parser handed over just before the breakage is still to be emitted, so it counts.
    this.#stopListening = onBreak(request.socket, () => {
      this.#endIn(0);
      this.#broken = true;
    });
    request
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('close', this.#onBroken)
      .on('error', this.#onBroken);
  }

  /**
   * Reads up to 65,000 bytes and drains the rest. Never rejects; ends within `BODY_TIMEOUT_MS` plus
   * `DRAIN_MAX_MS`.
   */
  read(): Promise<ReadBody> {
    this.#ask(this.#gaveWay || this.#received > MAX_BODY_BYTES ? DRAIN_MAX_MS : BODY_TIMEOUT_MS);
    return new Promise((resolve) => this.whenEnded((how) => resolve(this.#result(how))));
  }

  /** Keeps nothing of it; what still comes is thrown away, within the bounds of draining. */
  drop(): void {
    this.#keep = 0;
    this.#dropBytes();
    this.#ask(DRAIN_MAX_MS);
  }

  /** Gives the room back: somebody else counts the bytes now. */
  release(): void {
    this.#dropBytes();
  }

  /** Its room is needed by others. What still comes is drained. */
  giveWay(): void {
    this.#gaveWay = true;
    this.#keep = 0;
    this.#dropBytes();
    if (this.#asked) this.#endIn(DRAIN_MAX_MS);
  }

  /** Whether the partner has asked for a `100 Continue` before it sends any of it. */
  get expectsContinue(): boolean {
    const { expect } = this.#request.headers;
    return expect !== undefined && /^100-continue$/i.test(expect);
  }

  /** Whether the partner has asked for it and sent nothing yet. */
  get awaitsContinue(): boolean {
    return this.expectsContinue && this.#received === 0 && !this.#hasCome();
  }

  whenEnded(call: (how: 'whole' | 'cut_off') => void): void {
    if (this.#ended === undefined) this.#endListeners.push(call);
    else call(this.#ended);
  }

  /** Tells whether all of it has come, waiting `EARLY_GRACE_MS` for a body that is being sent. */
  whenNearlyCome(call: (come: boolean) => void): void {
    if (this.#hasCome()) return call(true);
    if (this.awaitsContinue) return call(false);
    let told = false;
    const tell = (): void => {
      if (told) return;
      told = true;
      clearTimeout(timer);
      call(this.#hasCome());
    };
    // What came while this process was busy is read before the look.
    const timer = setTimeout(() => setImmediate(tell), EARLY_GRACE_MS);
    this.whenEnded(tell);
  }

  #hasCome(): boolean {
    const { complete, headers } = this.#request;
    if (complete || this.#ended === 'whole') return true;
    return headers['transfer-encoding'] === undefined && (headers['content-length'] ?? '0') === '0';
  }

  #ask(timeoutMs: number): void {
    if (!this.#asked) this.#endIn(timeoutMs);
    this.#asked = true;
  }

  /** A breakage ends it sooner than anything else. */
  #endIn(milliseconds: number): void {
    if (this.#ended !== undefined || this.#broken) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.#onBroken, milliseconds);
  }

  readonly #onData = (chunk: Buffer): void => {
    const before = this.#received;
    this.#received += chunk.length;
    this.#keepOf(chunk);
    if (this.#received > this.#keep + DRAIN_MAX_BYTES) this.#finish('cut_off');
    // From here on the body is only drained, within its own time.
    else if (
      this.#asked &&
      this.#keep > 0 &&
      this.#received > MAX_BODY_BYTES &&
      before <= MAX_BODY_BYTES
    )
      this.#endIn(DRAIN_MAX_MS);
  };
  readonly #onEnd = (): void => this.#finish('whole');
  readonly #onBroken = (): void => this.#finish('cut_off');

  #keepOf(chunk: Buffer): void {
    const part = chunk.subarray(0, Math.max(0, this.#keep - this.#kept));
    if (part.length === 0) return;
    const kept = this.#kept + part.length;
    if (this.#kept === 0) {
      this.#room.resize(this, part.length);
      if (this.#gaveWay) return;
      // Most bodies come in one piece, which is then kept as it is.
      this.#bytes = part;
    } else {
      if (kept > this.#bytes.length && !this.#grow(kept)) return;
      this.#bytes.set(part, this.#kept);
    }
    this.#kept = kept;
  }

  /** Makes room for `kept` bytes; false when this body had to give way itself. */
  #grow(kept: number): boolean {
    const size = Math.min(MAX_BODY_BYTES, Math.max(GATHER_BYTES, 2 * this.#bytes.length, kept));
    this.#room.resize(this, size);
    if (this.#gaveWay) return false;
    // Not from Node's pool: a slow body would hold a whole slab of it.
    const grown = Buffer.allocUnsafeSlow(size);
    grown.set(this.#bytes);
    this.#bytes = grown;
    return true;
  }

  #finish(how: 'whole' | 'cut_off'): void {
    if (this.#ended !== undefined) return;
    this.#ended = how;
    clearTimeout(this.#timer);
    this.#stopListening();
    const request = this.#request;
    request
      .off('data', this.#onData)
      .off('end', this.#onEnd)
      .off('close', this.#onBroken)
      .off('error', this.#onBroken);
    if (how !== 'whole') {
      request.pause();
      // A broken request still emits an error when its socket goes.
      request.on('error', () => {});
    }
    for (const call of this.#endListeners) call(how);
  }

  #result(how: 'whole' | 'cut_off'): ReadBody {
    const end = this.#gaveWay ? 'no_room' : this.#received > MAX_BODY_BYTES ? 'too_large' : how;
    const kept = this.#bytes.subarray(0, this.#kept);
    // A record waits with a copy of its own size, not with what it was gathered in.
    const bytes = kept.length < this.#bytes.length ? Buffer.from(kept) : kept;
    return { end, bytes, received: this.#received, reusable: how === 'whole' };
  }

  #dropBytes(): void {
    this.#bytes = NOTHING;
    this.#kept = 0;
    this.#room.release(this);
  }
}
