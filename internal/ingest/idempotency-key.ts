/**
 * The Idempotency-Key header (draft-ietf-httpapi-idempotency-key-header): a string of RFC 8941, or
 * the same without quotes.
 */
import { MAX_IDEMPOTENCY_KEY } from './limits.ts';

const QUOTED = /^"((?:[ !#-[\]-~]|\\["\\])*)"$/;
/** Visible ASCII, but nothing that quotes or separates: several headers come joined by commas. */
const UNQUOTED = /^[!#-+\--:<-[\]-~]+$/;

/** The key in the header; undefined without one, and false where it is malformed. */
export function readIdempotencyKey(
  header: string | readonly string[] | undefined,
): string | undefined | false {
  if (header === undefined) return undefined;
  if (typeof header !== 'string') return false;
  const key =
    QUOTED.exec(header)?.[1]?.replaceAll(/\\(.)/g, '$1') ?? (UNQUOTED.test(header) ? header : '');
  return key.length >= 1 && key.length <= MAX_IDEMPOTENCY_KEY && key;
}
