/** Time-ordered unique ids with a telling prefix: UUIDv7 in base32 (typeid), legal in URLs and as BullMQ job ids. */
import { typeidUnboxed } from 'typeid-js';

/** e.g. `newId('req')` → `req_01kaj6…` (26 characters after the prefix). */
export function newId(prefix: string): string {
  return typeidUnboxed(prefix);
}
