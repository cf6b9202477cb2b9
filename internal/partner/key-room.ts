/** Who may have how much of the one document that holds all keys. */
import { BSON } from 'mongodb';
import type { StoredKey } from './key-document.ts';

/** MongoDB takes documents of 16 MiB; a key without networks has 300 to 500 bytes. */
export const KEYS_MAX = 10_000;
const KEY_BYTES = 1_200;

/** Keys are counted in bytes, so that this one bound is 10,000 keys and 12 MB. */
const ROOM = KEYS_MAX * KEY_BYTES;

export interface KeyRoom {
  readonly fitting: readonly StoredKey[];
  readonly over: readonly StoredKey[];
  /** Of all keys that are asked for; 1 is full. */
  readonly asked: number;
}

/**
 * Divides the room: a partner that asks for no more than its share gets all, and what it leaves is
 * shared by the others. The first keys of a partner are the first to fit.
 */
export function shareRoom(keys: readonly StoredKey[]): KeyRoom {
  const partners = [...Map.groupBy(keys, ({ partnerId }) => partnerId).values()]
    .map((ofPartner) => ({ keys: ofPartner, bytes: sum(ofPartner) }))
    .toSorted((one, other) => one.bytes - other.bytes);
  const asked = partners.reduce((total, { bytes }) => total + bytes, 0);
  const over = new Set<StoredKey>();
  let room = ROOM;
  for (const [index, partner] of partners.entries()) {
    const share = Math.min(partner.bytes, room / (partners.length - index));
    room -= share;
    let taken = 0;
    for (const key of partner.keys) {
      taken += bytesOf(key);
      if (taken > share) over.add(key);
    }
  }
  return {
    fitting: keys.filter((key) => !over.has(key)),
    over: [...over],
    asked: asked / ROOM,
  };
}

const sum = (keys: readonly StoredKey[]): number =>
  keys.reduce((total, key) => total + bytesOf(key), 0);

const bytesOf = (key: StoredKey): number =>
  Math.max(KEY_BYTES, BSON.calculateObjectSize(key) + ARRAY_BYTES);
/** Its type and its index in the array. */
const ARRAY_BYTES = 7;
