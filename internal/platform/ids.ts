/**
 * Time-ordered unique ids with a telling prefix: UUIDv7 in base32 (typeid), legal in URLs and as
 * BullMQ job ids.
 */
import { fromString, fromUUIDBytes, toUUIDBytes, typeidUnboxed } from 'typeid-js';

/**
 * e.g. `newId('req')` → `req_01kaj6…` (26 characters after the prefix), greater than all that this
 * process made before.
 */
export function newId(prefix: string): string {
  return typeidUnboxed(prefix);
}

/**
 * The smallest id of `prefix` that can have been made at `date`: where a range of ids by time
 * begins.
 */
export function firstIdAt(prefix: string, date: Date): string {
  const bytes = new Uint8Array(16);
  const milliseconds = Math.max(0, date.getTime());
  // The first 48 bits of a UUIDv7 are its time in milliseconds (RFC 9562 §5.7).
  new DataView(bytes.buffer).setBigUint64(0, BigInt(milliseconds) << 16n);
  return fromUUIDBytes(prefix, bytes);
}

/**
 * The smallest id of the same prefix that can be made `ms` after `id`; undefined in the future, and
 * for an id that is none of ours.
 */
export function idLater(id: string, ms: number): string | undefined {
  const atMs = (timeOfId(id)?.getTime() ?? NaN) + ms;
  return atMs < Date.now()
    ? firstIdAt(id.slice(0, id.lastIndexOf('_')), new Date(atMs))
    : undefined;
}

/**
 * What a person can read out of an id: its first 16 letters in groups of four. They hold its time
 * and 26 random bits.
 */
export function referenceOf(id: string): string {
  const letters = id.slice(id.indexOf('_') + 1, id.indexOf('_') + 17).toUpperCase();
  return letters.replace(/.{4}(?=.)/g, '$&-');
}

/** When an id was made, to the millisecond; undefined when it is none of ours. */
export function timeOfId(id: string): Date | undefined {
  try {
    const bytes = toUUIDBytes(fromString(id));
    return new Date(Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0) >> 16n));
  } catch {
    return undefined;
  }
}
