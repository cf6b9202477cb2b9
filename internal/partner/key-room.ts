/** Who may have how much of the one document that holds all keys. */
import { Turns } from '../fair/turns.ts';
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

/** Beyond the room, the partner that asks for most loses its newest key, until the rest fits. */
export function shareRoom(keys: readonly StoredKey[]): KeyRoom {
  const turns = new Turns<StoredKey>({ sizeOf: bytesOf });
  for (const key of keys) turns.put(key.partnerId, key);
  const asked = turns.size / ROOM;
  const over = new Set<StoredKey>();
  while (turns.size > ROOM) over.add(turns.giveWay('size')!);
  return { fitting: keys.filter((key) => !over.has(key)), over: [...over], asked };
}

/** BSON needs 7 bytes more than JSON for an element of an array, and fewer for the rest. */
const bytesOf = (key: StoredKey): number =>
  Math.max(KEY_BYTES, JSON.stringify(key).length + 7 * (key.terms.cidrs?.length ?? 0));
