/** Unique ids that sort by time: UUIDv7 in base32 with a prefix (typeid). */
import { randomFillSync } from 'node:crypto';
import { fromString, fromUUIDBytes, toUUIDBytes } from 'typeid-js';

/** A time further back is no jitter: the clock was set, and ids follow it. */
const SET_BACK_MS = 10_000;
const ID_BYTES = 16;
const last = { ms: 0, sequence: 0 };
/** Random bytes for many ids at once, because each call costs microseconds. */
const random = Buffer.alloc(256 * ID_BYTES);
let used = random.length;

/**
 * `newId('req', now)` gives `req_01kaj6…` (26 characters after the prefix), greater than all
 * earlier ids of this process.
 */
export function newId(prefix: string, now: Date): string {
  if (used === random.length) {
    randomFillSync(random);
    used = 0;
  }
  const bytes = random.subarray(used, used + ID_BYTES);
  used += ID_BYTES;
  const ms = now.getTime();
  if (ms > last.ms || ms < last.ms - SET_BACK_MS) {
    last.ms = ms;
    last.sequence = bytes.readUInt32BE(4) >>> 1;
  } else last.sequence += 1;
  // Time, version 7, a sequence of 12 and 20 bits, and the variant (RFC 9562 §5.7).
  bytes.writeUIntBE(last.ms, 0, 6);
  bytes.writeUInt16BE(0x7000 + (last.sequence >>> 20), 6);
  const low = (last.sequence & 0xf_ff_ff) * 2 ** 10;
  bytes.writeUInt32BE(0x80_00_00_00 + low + (bytes.readUInt32BE(8) & 0x3_ff), 8);
  return fromUUIDBytes(prefix, bytes);
}

/** The lower bound for a range of ids by time. */
export function firstIdAt(prefix: string, date: Date): string {
  const bytes = new Uint8Array(16);
  const milliseconds = Math.max(0, date.getTime());
  // The first 48 bits of a UUIDv7 are its time in milliseconds (RFC 9562 §5.7).
  new DataView(bytes.buffer).setBigUint64(0, BigInt(milliseconds) << 16n);
  return fromUUIDBytes(prefix, bytes);
}

/** The smallest id `ms` after `id`; undefined if that is in the future or `id` is invalid. */
export function idLater(id: string, ms: number): string | undefined {
  const atMs = (timeOfId(id)?.getTime() ?? NaN) + ms;
  return atMs < Date.now()
    ? firstIdAt(id.slice(0, id.lastIndexOf('_')), new Date(atMs))
    : undefined;
}

/** The id in a form to read aloud: 16 letters in groups of four. */
export function referenceOf(id: string): string {
  const letters = id.slice(id.indexOf('_') + 1, id.indexOf('_') + 17).toUpperCase();
  return letters.replace(/.{4}(?=.)/g, '$&-');
}

/** Undefined if the id is invalid. */
export function timeOfId(id: string): Date | undefined {
  try {
    const bytes = toUUIDBytes(fromString(id));
    return new Date(Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0) >> 16n));
  } catch {
    return undefined;
  }
}
