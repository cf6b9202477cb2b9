/** Decides who the partner is from the Authorization header. Pure but for the look-up it is given. */
import type { KeyLookup } from '../partner/key-cache.ts';
import type { KeyTerms } from '../partner/key-terms.ts';
import { errors } from './errors.ts';

/** The answers to a request whose key is missing, unknown or inactive. */
type Refusal = (typeof errors)['keyMissing' | 'keyInvalid' | 'partnerInactive'];

export type Authentication =
  | { readonly ok: true; readonly partnerId: string; readonly terms: KeyTerms }
  | { readonly ok: false; readonly answer: Refusal; readonly partnerId?: string };

/** `Bearer` in any case, then the key. No header, another scheme or an empty key all count as "missing". */
export function authenticate(header: string | undefined, lookup: (key: string) => KeyLookup): Authentication {
  const key = /^bearer(?:[ \t]+(.*))?$/is.exec(header?.trim() ?? '')?.[1]?.trim() ?? '';
  if (key === '') return { ok: false, answer: errors.keyMissing };
  const found = lookup(key);
  if (!found.known) return { ok: false, answer: errors.keyInvalid };
  if (!found.active) return { ok: false, answer: errors.partnerInactive, partnerId: found.partnerId };
  return { ok: true, partnerId: found.partnerId, terms: found.terms };
}
