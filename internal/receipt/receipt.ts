/**
 * A receipt: a compact JWS (RFC 7515) that says which partner sent which bytes, and when. It holds
 * their SHA-256 and no field of the application.
 */
import { hash, sign, verify, createPrivateKey, createPublicKey, type KeyObject } from 'node:crypto';
import { z } from 'zod';
import type { Clock } from '../platform/process/clock.ts';

const RECEIPT_TYPE = 'receipt+jwt';
/** A receipt of the longest names has a third of it. */
const MAX_RECEIPT_CHARACTERS = 4_096;

const claims = z.object({
  iss: z.string(),
  partner: z.string(),
  request_id: z.string(),
  received_at: z.iso.datetime(),
  /** Hexadecimal, of the body as it came. */
  body_sha256: z.string(),
  body_length: z.number(),
  /** Present where a test key submitted it. */
  test: z.literal(true).optional(),
});
export type Receipt = z.output<typeof claims>;

const header = z.object({
  alg: z.literal('ES256'),
  typ: z.literal(RECEIPT_TYPE),
  kid: z.string(),
  /** An extension that we do not know must not be ignored. */
  crit: z.never().optional(),
});

/** What of a record a receipt says. */
interface Receipted {
  readonly _id: string;
  readonly partnerId?: string;
  readonly receivedAt: Date;
  readonly bodySha256?: string;
  readonly bodyBytes: number;
  readonly test?: true;
}

interface SignerTools {
  readonly keys: ReceiptKeys;
  readonly clock: Clock;
}

const encoded = (value: unknown): string =>
  Buffer.from(JSON.stringify(value)).toString('base64url');

export class ReceiptSigner {
  readonly #issuer: string;
  readonly #keys: readonly (ReceiptKey & { readonly head: string })[];
  readonly #clock: Clock;

  constructor({ keys: { issuer = '', keys }, clock }: SignerTools) {
    this.#issuer = issuer;
    this.#clock = clock;
    this.#keys = keys.map((key) => {
      const head = encoded({ alg: 'ES256', typ: RECEIPT_TYPE, kid: key.kid });
      return { ...key, head };
    });
  }

  /** Undefined while no key signs. Takes 30 us. */
  sign(record: Receipted): string | undefined {
    const key = signingKey(this.#keys, this.#clock.now());
    if (key?.privateKey === undefined) return undefined;
    const receipt: Receipt = {
      iss: this.#issuer,
      partner: record.partnerId ?? '',
      request_id: record._id,
      received_at: record.receivedAt.toISOString(),
      body_sha256: record.bodySha256 ?? '',
      body_length: record.bodyBytes,
      ...(record.test && { test: true }),
    };
    const signed = `${key.head}.${encoded(receipt)}`;
    const { digest, form } = SIGNATURE;
    const signature = sign(digest, Buffer.from(signed), { key: key.privateKey, ...form });
    return `${signed}.${signature.toString('base64url')}`;
  }
}

/** `fault` continues a sentence that begins with the receipt. */
type CheckedReceipt =
  | { readonly receipt: Receipt; readonly fault?: never }
  | { readonly receipt?: never; readonly fault: string };

const NOT_COMPACT =
  'is cut off or something else: it must be three parts of base64url with dots between them';

export function checkReceipt(text: string, { issuer, keys }: ReceiptKeys): CheckedReceipt {
  if (text.length > MAX_RECEIPT_CHARACTERS) return { fault: NOT_COMPACT };
  const parts = text.split('.');
  const [head, payload, signature] = parts.map((part) => Buffer.from(part, 'base64url'));
  // Other spellings of the same bytes would pass as unchanged.
  const isCanonical = parts.every(
    (part) => part === Buffer.from(part, 'base64url').toString('base64url'),
  );
  if (parts.length !== 3 || !isCanonical || !head || !payload || !signature)
    return { fault: NOT_COMPACT };
  const { data: protectedHeader } = header.safeParse(jsonOf(head));
  if (protectedHeader === undefined)
    return {
      fault: `is another kind of JWS: its header is not that of ${RECEIPT_TYPE} with ES256`,
    };
  const key = keys.find(({ kid }) => kid === protectedHeader.kid);
  if (key === undefined) return { fault: 'is signed with a key that is not among the keys given' };
  const signed = Buffer.from(parts.slice(0, 2).join('.'));
  const { digest, form } = SIGNATURE;
  if (!verify(digest, signed, { key: key.publicKey, ...form }, signature))
    return { fault: 'was changed, or its key signed something else: the signature is wrong' };
  const { data: receipt } = claims.safeParse(jsonOf(payload));
  if (receipt === undefined) return { fault: 'says something that this version does not know' };
  if (issuer !== undefined && issuer !== receipt.iss)
    return { fault: 'is of another issuer than the keys' };
  return { receipt };
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString());
  } catch {
    return undefined;
  }
}

/** Why the body is not the one of the receipt; undefined if it is. */
export function bodyFault(receipt: Receipt, body: Uint8Array): string | undefined {
  if (body.length !== receipt.body_length)
    return `the body has ${body.length} bytes, that of the receipt ${receipt.body_length}`;
  return hash('sha256', body, 'hex') === receipt.body_sha256
    ? undefined
    : 'the body has the length of the one received, but another content';
}

/* The keys of receipts: the set in the operator's Secret, and what is published of it. */

/** One key a day for years; a set is read at each start. */
const MAX_KEYS = 1_000;

/** RFC 7518: with SHA-256 on P-256, both halves of the signature in 64 bytes. */
const SIGNATURE = { digest: 'sha256', form: { dsaEncoding: 'ieee-p1363' } } as const;

const coordinate = z.string().regex(/^[A-Za-z0-9_-]{43}$/);
const publicJwk = { kty: z.literal('EC'), crv: z.literal('P-256'), x: coordinate, y: coordinate };
const jwkSet = z.object({
  /** The public base URL, up to `/api/v1`; absent where only a published set is read. */
  issuer: z.url({ protocol: /^https?$/ }).optional(),
  keys: z
    .array(
      z.object({
        ...publicJwk,
        /** Absent once the key is retired. */
        d: coordinate.optional(),
        /** It signs from then on, until the next one does. */
        not_before: z.iso.datetime({ offset: true }).optional(),
      }),
    )
    .min(1)
    .max(MAX_KEYS),
});

type Jwk = z.output<typeof jwkSet>['keys'][number];

export interface ReceiptKey {
  /** The thumbprint of RFC 7638, so that an id names one key only. */
  readonly kid: string;
  readonly jwk: Pick<Jwk, keyof typeof publicJwk>;
  readonly publicKey: KeyObject;
  /** Absent once the key is retired. */
  readonly privateKey: KeyObject | undefined;
  readonly notBefore: Date;
}

export interface ReceiptKeys {
  readonly issuer: string | undefined;
  /** The one that signs last comes last. */
  readonly keys: readonly ReceiptKey[];
}

/** What is wrong with a set of keys; quotes no value. */
export class KeySetError extends Error {
  override readonly name = 'KeySetError';
}

function parseKeySet(text: string): z.output<typeof jwkSet> {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new KeySetError('is not JSON');
  }
  const { data, error } = jwkSet.safeParse(json);
  if (error === undefined) return data;
  const at = error.issues[0]?.path.join('.') ?? '';
  throw new KeySetError(`is no set of P-256 keys: ${at || 'its shape'} is wrong`);
}

/** Throws `KeySetError`. */
export function readKeySet(text: string): ReceiptKeys {
  const { issuer, keys } = parseKeySet(text);
  const read = keys.map(readKey).toSorted((one, other) => +one.notBefore - +other.notBefore);
  if (new Set(read.map(({ kid }) => kid)).size < read.length)
    throw new KeySetError('holds a key twice');
  return { issuer, keys: read };
}

/** Why the set cannot sign receipts. */
export function signingFault(text: string): string | undefined {
  try {
    const { issuer, keys } = readKeySet(text);
    if (issuer === undefined) return 'has no issuer';
    return keys.some(({ privateKey }) => privateKey) ? undefined : 'holds no private key';
  } catch (error) {
    return (error as Error).message;
  }
}

function readKey(jwk: Jwk, index: number): ReceiptKey {
  const { kty, crv, x, y, d, not_before: from = 0 } = jwk;
  const notBefore = new Date(from);
  try {
    const publicKey = createPublicKey({ key: { kty, crv, x, y }, format: 'jwk' });
    const privateKey =
      d === undefined ? undefined : createPrivateKey({ key: { kty, crv, x, y, d }, format: 'jwk' });
    if (privateKey !== undefined && !isPair(privateKey, publicKey)) throw new Error('no pair');
    const kid = hash('sha256', JSON.stringify({ crv, kty, x, y }), 'base64url');
    return { kid, jwk: { kty, crv, x, y }, publicKey, privateKey, notBefore };
  } catch {
    throw new KeySetError(`is no set of P-256 keys: keys.${index} is no key`);
  }
}

function isPair(privateKey: KeyObject, publicKey: KeyObject): boolean {
  const probe = Buffer.from('a receipt');
  const { digest, form } = SIGNATURE;
  const signature = sign(digest, probe, { key: privateKey, ...form });
  return verify(digest, probe, { key: publicKey, ...form }, signature);
}

/** The one that signs: the last that has begun and is not retired. */
export const signingKey = <Key extends Pick<ReceiptKey, 'privateKey' | 'notBefore'>>(
  keys: readonly Key[],
  now: Date,
): Key | undefined => keys.findLast((key) => key.privateKey && key.notBefore <= now);

/** A JWK set (RFC 7517) without anything private. */
export const publishedSet = ({ keys }: ReceiptKeys) => ({
  keys: keys.map(({ kid, jwk }) => ({ ...jwk, kid, alg: 'ES256', use: 'sig' })),
});
