/** Reads the header Idempotency-Key. */
import { MAX_IDEMPOTENCY_KEY } from './bounds.ts';

const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/;
/** Excludes commas, because Node joins repeated headers with them. */
const UNQUOTED = /^[!#-+\--:<-[\]-~]+$/;

export type IdempotencyKey =
  { readonly kind: 'none' | 'malformed' } | { readonly kind: 'given'; readonly key: string };

/**
 * Reads the Idempotency-Key header (draft-ietf-httpapi-idempotency-key-header): a string of RFC
 * 8941 or the same without quotes.
 */
export function readIdempotencyKey(header: string | readonly string[] | undefined): IdempotencyKey {
  if (header === undefined) return { kind: 'none' };
  if (typeof header !== 'string') return { kind: 'malformed' };
  const key =
    QUOTED.exec(header)?.[1]?.replaceAll(/\\(.)/g, '$1') ?? (UNQUOTED.test(header) ? header : '');
  const isInBounds = key.length >= 1 && key.length <= MAX_IDEMPOTENCY_KEY;
  return isInBounds ? { kind: 'given', key } : { kind: 'malformed' };
}
