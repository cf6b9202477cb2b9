/** Decides who the partner is from the Authorization header. Pure but for what it is given. */
import type { KeyLookup } from '../partner/key-cache.ts';
import type { KeyTerms } from '../partner/key-terms.ts';
import { errors } from './errors.ts';

/** The answers to a request whose key is missing, unknown or inactive. */
type Refusal = (typeof errors)['keyMissing' | 'keyInvalid' | 'partnerInactive'];

export type Authentication =
  | { readonly ok: true; readonly partnerId: string; readonly terms: KeyTerms }
  | {
      readonly ok: false;
      readonly answer: Refusal;
      readonly partnerId?: string;
      /** Why a known key does not count: it has ended, or the address is not one of its own. */
      readonly because?: 'ended' | 'address';
    };

export interface AuthenticateTools {
  lookup(key: string): KeyLookup;
  now(): Date;
}

/**
 * `Bearer` in any case, then the key. No header, another scheme or an empty key all count as
 * "missing". A key that has ended or comes from an address that is not its own is answered as one
 * that does not exist: whoever found it learns nothing.
 */
export function authenticate(
  header: string | undefined,
  address: string,
  tools: AuthenticateTools,
): Authentication {
  const key = /^bearer(?:[ \t]+(.*))?$/is.exec(header?.trim() ?? '')?.[1]?.trim() ?? '';
  if (key === '') return { ok: false, answer: errors.keyMissing };
  const found = tools.lookup(key);
  if (!found.known) return { ok: false, answer: errors.keyInvalid };
  const { partnerId, terms } = found;
  if (terms.notAfter !== undefined && tools.now() >= terms.notAfter) {
    return { ok: false, answer: errors.keyInvalid, partnerId, because: 'ended' };
  }
  if (!found.admits(address))
    return { ok: false, answer: errors.keyInvalid, partnerId, because: 'address' };
  if (!found.active) return { ok: false, answer: errors.partnerInactive, partnerId };
  return { ok: true, partnerId, terms };
}
