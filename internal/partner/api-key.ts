/**
 * API keys: how new ones look, what is accepted as one, and the hash that stands for it everywhere
 * else.
 */
import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { isGuessable } from '../platform/guessable.ts';

const PREFIX = 'pik_';
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 40 characters of 62 are 238 bits: beyond any guessing. */
const RANDOM_CHARACTERS = 40;
const CHECKSUM_CHARACTERS = 6;
/** Keys made elsewhere are welcome, but not shorter than this. */
export const KEY_MIN_LENGTH = 20;
/** Longer ones would not fit a request's headers together with everything else. */
export const KEY_MAX_LENGTH = 1_024;

/** A fresh key such as `pik_…`; the checksum at its end lets scanners recognise a leaked one. */
export function newApiKey(): string {
  let random = '';
  for (let index = 0; index < RANDOM_CHARACTERS; index += 1)
    random += ALPHABET.charAt(randomInt(ALPHABET.length));
  return PREFIX + random + checksum(random);
}

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let index = 0; index < CHECKSUM_CHARACTERS; index += 1) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

/** SHA-256 in hex: the only form in which a key is stored, compared or named. */
export function hashApiKey(key: string): string {
  return hash('sha256', key, 'hex');
}

/** Characters of a key's hash that name it for operators: 48 bits, enough for millions of keys. */
export const KEY_ID_LENGTH = 12;
export const keyIdOf = (digest: string): string => digest.slice(0, KEY_ID_LENGTH);

/** How a Secret or a manifest gives a key without being a credential itself. */
export const keyDigest = (key: string): string => `sha256:${hashApiKey(key)}`;

/** The hash that a Secret's entry gives: undefined where the entry is no digest. */
export function hashOfDigest(entry: string): string | undefined {
  return /^sha256:([0-9a-f]{64})$/i.exec(entry)?.[1]?.toLowerCase();
}

const EMPTY = hashApiKey('');

/**
 * The digest of nothing: what a command printed that was given no key. Of all others nothing can be
 * told.
 */
export const digestProblem = (digest: string): KeyProblem | undefined =>
  digest === EMPTY ? 'empty_key' : undefined;

type KeyProblem =
  'empty_key' | 'key_too_short' | 'key_too_long' | 'key_not_printable' | 'key_guessable';

/**
 * Why `key` cannot be used, or undefined. A digest that is not well-formed is no key, or it would
 * become one by itself.
 */
export function apiKeyProblem(key: string): KeyProblem | undefined {
  if (key === '') return 'empty_key';
  if (!/^[\x21-\x7e]+$/.test(key)) return 'key_not_printable';
  if (key.length < KEY_MIN_LENGTH) return 'key_too_short';
  if (key.length > KEY_MAX_LENGTH) return 'key_too_long';
  return isGuessable(key) || /^sha256:/i.test(key) ? 'key_guessable' : undefined;
}
