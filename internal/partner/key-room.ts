/** Who may have how much of the one document that holds all keys. */
import type { StoredKey } from './key-document.ts';

/** MongoDB takes documents of 16 MiB; a key without networks has 300 to 500 bytes. */
export const KEYS_MAX = 10_000;
const KEY_BYTES = 1_200;

/** Keys are counted in bytes, so that this one bound is 10,000 keys and 12 MB. */
const ROOM = KEYS_MAX * KEY_BYTES;

interface KeyRoom {
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
  const sized = keys.map((key) => ({ key, bytes: bytesOf(key) }));
  const partners = [...Map.groupBy(sized, ({ key }) => key.partnerId).values()]
    .map((own) => ({ own, asked: own.reduce((sum, { bytes }) => sum + bytes, 0) }))
    .toSorted((one, other) => one.asked - other.asked);
  const over = new Set<StoredKey>();
  let room = ROOM;
  for (const [index, { own, asked }] of partners.entries()) {
    const share = Math.min(asked, room / (partners.length - index));
    room -= share;
    let taken = 0;
    for (const { key, bytes } of own) {
      taken += bytes;
      if (taken > share) over.add(key);
    }
  }
  return {
    fitting: keys.filter((key) => !over.has(key)),
    over: [...over],
    asked: partners.reduce((sum, { asked }) => sum + asked, 0) / ROOM,
  };
}

/** BSON needs 7 bytes more than JSON for an element of an array, and fewer for the rest. */
const bytesOf = (key: StoredKey): number =>
  Math.max(KEY_BYTES, JSON.stringify(key).length + 7 * (key.terms.cidrs?.length ?? 0));
