/** Reads a body as raw bytes within bounds and discards the rest. */
import type { IncomingMessage } from 'node:http';
import type { FairShares, Owner } from '../fair/shares.ts';
import { afterLastAnswer } from '../platform/http/inside-node.ts';
import { Connection } from './connections.ts';
import { DRAIN_MAX_BYTES, DRAIN_MAX_MS, EARLY_GRACE_MS, MAX_BODY_BYTES } from './bounds.ts';

/** The partner has this long to read the last answer. */
const LINGER_UNREAD_MS = 1_000;
/** 65 kB in 10 s is 52 kbit/s, which any modern link reaches. */
const BODY_TIMEOUT_MS = 10_000;

/** `cut_off`: the partner left, broke the framing, or sent too much. */
type BodyEnd = 'whole' | 'cut_off' | 'too_slow';

/**
 * - `too_large`: `bytes` holds the first 65,000.
 * - `no_room`: other bodies took its memory.
 */
export interface ReadBody {
  readonly end: BodyEnd | 'too_large' | 'no_room';
  readonly bytes: Buffer;
  readonly received: number;
  readonly reusable: boolean;
}

const NOTHING = Buffer.alloc(0);
/** Smaller bodies are not counted: their requests weigh more, and are bounded in number. */
const SMALL_BYTES = 1_024;

/**
 * Collects a body before it is known to be wanted, because Node would keep its pieces as objects:
 * 65 kB in pieces of one byte take 20 MB. The memory is reserved until `freeMemory()` or `drop()`.
 */
export class IncomingBody {
  readonly #request: IncomingMessage;
  readonly #memory: FairShares<IncomingBody>;
  #owner: Owner;
  readonly #endListeners: ((how: BodyEnd) => void)[] = [];
  #ended: BodyEnd | undefined;
  #timer: NodeJS.Timeout | undefined;
  #bytes: Buffer = NOTHING;
  #kept = 0;
  #received = 0;
  #keep = MAX_BODY_BYTES;
  #asked = false;
  #broken = false;
  #gaveWay = false;

  constructor(request: IncomingMessage, memory: FairShares<IncomingBody>, address: string) {
    this.#request = request;
    this.#memory = memory;
    this.#owner = ['', address];
    Connection.of(request.socket).beginsToRead(this);
    request
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('close', this.#onBroken)
      .on('error', this.#onBroken);
  }

  /** Never rejects; ends within `BODY_TIMEOUT_MS` plus `DRAIN_MAX_MS`. */
  read(): ReadBody | Promise<ReadBody> {
    if (this.#ended !== undefined) return this.#result(this.#ended);
    this.#ask(this.#gaveWay || this.#received > MAX_BODY_BYTES ? DRAIN_MAX_MS : BODY_TIMEOUT_MS);
    return new Promise((resolve) => this.#whenEnded((how) => resolve(this.#result(how))));
  }

  drop(): void {
    this.#keep = 0;
    this.freeMemory();
    this.#ask(DRAIN_MAX_MS);
  }

  belongTo(partnerId: string): void {
    this.#owner = [partnerId, this.#owner[1]];
    this.#hold(this.#bytes.length);
  }

  giveWay(): void {
    this.#gaveWay = true;
    this.#keep = 0;
    this.freeMemory();
    if (this.#asked) this.#endIn(DRAIN_MAX_MS);
  }

  /** The parser still emits what it read before the break. */
  breakOff(): void {
    this.#endIn(0, 'cut_off');
    this.#broken = true;
  }

  get expectsContinue(): boolean {
    const { headers, httpVersion } = this.#request;
    const { expect } = headers;
    // RFC 9110 §10.1.1: in HTTP/1.0 it is ignored.
    if (httpVersion === '1.0') return false;
    return expect !== undefined && /^100-continue$/i.test(expect);
  }

  get awaitsContinue(): boolean {
    return this.expectsContinue && this.#received === 0 && !this.#hasCome();
  }

  /**
   * Makes the next answer the last of its connection. Closing with unread bytes resets it and can
   * destroy the answer, so the rest of the body is read within its bounds (RFC 9112 §9.6).
   */
  closeAfterAnswer(): void {
    const { socket } = this.#request;
    Connection.of(socket).isClosing = true;
    afterLastAnswer(socket, (close) =>
      this.#whenEnded((how) => {
        if (how === 'whole') close();
        else setTimeout(() => socket.destroy(), LINGER_UNREAD_MS).unref();
      }),
    );
  }

  #whenEnded(call: (how: BodyEnd) => void): void {
    if (this.#ended === undefined) this.#endListeners.push(call);
    else call(this.#ended);
  }

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
    // Bytes that arrived while this process was busy count.
    const timer = setTimeout(() => setImmediate(tell), EARLY_GRACE_MS);
    this.#whenEnded(tell);
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

  #endIn(milliseconds: number, how: BodyEnd = 'too_slow'): void {
    if (this.#ended !== undefined || this.#broken) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#finish(how), milliseconds);
  }

  readonly #onData = (chunk: Buffer): void => {
    const before = this.#received;
    this.#received += chunk.length;
    this.#keepOf(chunk);
    if (this.#received > this.#keep + DRAIN_MAX_BYTES) this.#finish('cut_off');
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
      this.#hold(part.length);
      if (this.#gaveWay) return;
      // Most bodies come in one piece, which is not copied.
      this.#bytes = part;
    } else {
      if (kept > this.#bytes.length && !this.#grow(kept)) return;
      this.#bytes.set(part, this.#kept);
    }
    this.#kept = kept;
  }

  #hold(bytes: number): void {
    if (bytes > SMALL_BYTES) this.#memory.hold(this, this.#owner, bytes);
  }

  #grow(kept: number): boolean {
    const size = Math.min(MAX_BODY_BYTES, Math.max(SMALL_BYTES, 2 * this.#bytes.length, kept));
    this.#hold(size);
    if (this.#gaveWay) return false;
    // Node's pool would keep a whole slab for a slow body.
    const grown = Buffer.allocUnsafeSlow(size);
    grown.set(this.#bytes);
    this.#bytes = grown;
    return true;
  }

  #finish(how: BodyEnd): void {
    if (this.#ended !== undefined) return;
    this.#ended = how;
    clearTimeout(this.#timer);
    const request = this.#request;
    Connection.of(request.socket).endsToRead(this);
    if (how !== 'whole') request.off('data', this.#onData).pause();
    for (const call of this.#endListeners) call(how);
  }

  #result(how: BodyEnd): ReadBody {
    const end = this.#gaveWay ? 'no_room' : this.#received > MAX_BODY_BYTES ? 'too_large' : how;
    const kept = this.#bytes.subarray(0, this.#kept);
    // The record must not hold the larger buffer.
    const bytes = kept.length < this.#bytes.length ? Buffer.from(kept) : kept;
    return { end, bytes, received: this.#received, reusable: how === 'whole' };
  }

  /** Called when the caller counts the bytes itself or needs none. */
  freeMemory(): void {
    this.#bytes = NOTHING;
    this.#kept = 0;
    this.#memory.remove(this);
  }
}
