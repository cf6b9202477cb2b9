/** API keys: how new ones look, what is accepted as one, and the hash that stands for it everywhere else. */
import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';

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
  for (let index = 0; index < RANDOM_CHARACTERS; index += 1) random += ALPHABET.charAt(randomInt(ALPHABET.length));
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

/** Why `key` cannot be used, or undefined: too short, too long, or not sendable in a header. */
export function apiKeyProblem(
  key: string,
): 'empty_key' | 'key_too_short' | 'key_too_long' | 'key_not_printable' | undefined {
  if (key === '') return 'empty_key';
  if (!/^[\x21-\x7e]+$/.test(key)) return 'key_not_printable';
  if (key.length < KEY_MIN_LENGTH) return 'key_too_short';
  if (key.length > KEY_MAX_LENGTH) return 'key_too_long';
  return undefined;
}
