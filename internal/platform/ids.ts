/** Unique ids that sort by time: UUIDv7 in base32 with a prefix (typeid). */
import { fromString, fromUUIDBytes, toUUIDBytes, typeidUnboxed } from 'typeid-js';

/**
 * `newId('req')` gives `req_01kaj6…` (26 characters after the prefix), greater than all earlier ids
 * of this process.
 */
export function newId(prefix: string): string {
  return typeidUnboxed(prefix);
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
