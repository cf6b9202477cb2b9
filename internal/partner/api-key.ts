/** Generates, checks and hashes API keys. */
import { hash, randomInt } from 'node:crypto';
import { crc32 } from 'node:zlib';

const PREFIX = 'pik_';
const TEST_PREFIX = 'pik_test_';
const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** 238 bits of randomness. */
const RANDOM_CHARACTERS = 40;
const CHECKSUM_CHARACTERS = 6;
export const KEY_MIN_LENGTH = 20;
/** A longer key would not fit into a request's headers. */
export const KEY_MAX_LENGTH = 1_024;

/** The checksum lets scanners recognise a leaked key. */
export function newApiKey({ test = false } = {}): string {
  const random = Array.from({ length: RANDOM_CHARACTERS }, () =>
    ALPHABET.charAt(randomInt(ALPHABET.length)),
  ).join('');
  return (test ? TEST_PREFIX : PREFIX) + random + checksum(random);
}

export const isTestKey = (key: string): boolean => key.startsWith(TEST_PREFIX);

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let index = 0; index < CHECKSUM_CHARACTERS; index += 1) {
    digits = ALPHABET.charAt(rest % ALPHABET.length) + digits;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return digits;
}

/** Keys are stored and compared only in this form. */
export function hashApiKey(key: string): string {
  return hash('sha256', key, 'hex');
}

/** Hex digits: 48 bits are enough for millions of keys. */
export const KEY_ID_LENGTH = 12;
export const keyIdOf = (digest: string): string => digest.slice(0, KEY_ID_LENGTH);

/** A Secret with digests only is no credential. */
export const keyDigest = (key: string): string => `sha256:${hashApiKey(key)}`;

export function hashOfDigest(entry: string): string | undefined {
  return /^sha256:([0-9a-f]{64})$/i.exec(entry)?.[1]?.toLowerCase();
}

const EMPTY = hashApiKey('');

export const digestProblem = (digest: string): KeyProblem | undefined =>
  digest === EMPTY ? 'empty_key' : undefined;

type KeyProblem =
  | 'empty_key'
  | 'key_too_short'
  | 'key_too_long'
  | 'key_not_printable'
  | 'key_guessable'
  | 'not_a_key';

const OWN_KEY = /^pik_(?:test_)?([0-9A-Za-z]{40})([0-9A-Za-z]{6})$/;
/** Earlier versions took all of these for keys. */
const OLDER_OWN_KEY = /^pik_[\w-]+$/;
/** A shorter text may be a name. */
const OLDER_KEY_MIN_LENGTH = 32;

export const hasOwnPrefix = (text: string): boolean => text.startsWith(PREFIX);

function isOwnKey(text: string): boolean {
  const [, random, sum] = OWN_KEY.exec(text) ?? [];
  return (random !== undefined && checksum(random) === sum) || PUBLISHED_KEYS.includes(text);
}

/**
 * Refuses malformed digests and other text that tools write. `older` allows keys that another
 * system issued, and those that begin `pik_` without a right checksum.
 */
export function apiKeyProblem(key: string, { older = false } = {}): KeyProblem | undefined {
  if (key === '') return 'empty_key';
  if (!/^[\x21-\x7e]+$/.test(key)) return 'key_not_printable';
  if (key.length < KEY_MIN_LENGTH) return 'key_too_short';
  if (key.length > KEY_MAX_LENGTH) return 'key_too_long';
  const unprefixed = key.replace(/^pik_(?:test_)?/, '');
  if (new Set(unprefixed).size <= 1 || /^sha256:/i.test(key)) return 'key_guessable';
  if (isOwnKey(key)) return undefined;
  const mayBeOlder = OLDER_OWN_KEY.test(key) || key.length >= OLDER_KEY_MIN_LENGTH;
  return older && mayBeOlder && appearance(key) === undefined ? undefined : 'not_a_key';
}

/** What a text that is no key looks like; the first match counts. */
const appearances: readonly (readonly [(text: string) => boolean, string])[] = [
  [(text) => /^\s*[{[]/.test(text), 'looks like JSON'],
  [(text) => /^["'`]|["'`]$/.test(text), 'stands in quotes'],
  [(text) => /^[a-z][a-z\d+.-]*:\/\//i.test(text), 'looks like a URL'],
  [(text) => text.includes('@'), 'looks like an address'],
  [(text) => /^[a-z\d-]+(?:\.[a-z\d-]+)*\.[a-z]{2,}(?::\d+)?$/.test(text), 'looks like a host'],
  [(text) => /^bearer\b/i.test(text), 'begins with "Bearer"'],
  [(text) => hasOwnPrefix(unwrapped(text)), 'is in base64 twice'],
  [(text) => /replace|change[-_]?me|placeholder/i.test(text), 'looks like a placeholder'],
  [(text) => /\s/.test(text), 'has blanks'],
];

const unwrapped = (text: string): string => Buffer.from(text, 'base64').toString('utf8').trim();

/** Describes the text without quoting it; undefined if nothing matches. */
export function appearance(text: string): string | undefined {
  return appearances.find(([fits]) => fits(text))?.[1];
}

/** This repository publishes them for the evaluation; they are not accepted elsewhere. */
const PUBLISHED_KEYS = [
  'pik_evaluation_only_not_for_production',
  'pik_test_evaluation_only_not_for_production',
];
const PUBLISHED_LINK_SECRETS = ['evaluation only, not a secret for production'];

const publishedHashes = new Set(PUBLISHED_KEYS.map(hashApiKey));

/** Takes a hash: a Secret may hold only the digest. */
export const isPublishedKey = (keyHash: string): boolean => publishedHashes.has(keyHash);

/** `value` may also contain key ids, and two secrets. */
export const hasPublishedSecret = (value: string): boolean =>
  PUBLISHED_LINK_SECRETS.some((secret) => value.includes(secret));
