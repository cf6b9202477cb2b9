import { crc32 } from 'node:zlib';
import { expect, test } from '@jest/globals';
import { KEY_MAX_LENGTH, KEY_MIN_LENGTH, apiKeyProblem, newApiKey } from './api-key.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

test('a new key has prefix, 40 random characters and a checksum that a scanner can verify', () => {
  const key = newApiKey();
  expect(key).toMatch(/^pik_[0-9A-Za-z]{46}$/);
  const [random, checksum] = [key.slice(4, 44), key.slice(44)];
  const value = checksum
    .split('')
    .reduce((sum, digit) => sum * ALPHABET.length + ALPHABET.indexOf(digit), 0);
  expect(value).toBe(crc32(random));
  expect(apiKeyProblem(key)).toBeUndefined();
});

test.each([
  ['', 'empty_key'],
  ['a'.repeat(KEY_MIN_LENGTH - 1), 'key_too_short'],
  [newApiKey().slice(4, 4 + KEY_MIN_LENGTH), undefined],
  [newApiKey().repeat(21).slice(0, KEY_MAX_LENGTH), undefined],
  ['a'.repeat(KEY_MIN_LENGTH), 'key_guessable'],
  ['abcabcabcabcabcabcabcabc', 'key_guessable'],
  [`sha256:${'a1'.repeat(31)}`, 'key_guessable'],
  ['acme-2026-orange-zebra-42', undefined],
  ['a'.repeat(KEY_MAX_LENGTH + 1), 'key_too_long'],
  [`${'a'.repeat(30)} `, 'key_not_printable'],
  [`${'a'.repeat(30)}\n`, 'key_not_printable'],
  [`${'a'.repeat(30)}ä`, 'key_not_printable'],
])('%j: %s', (key, problem) => {
  expect(apiKeyProblem(key)).toBe(problem);
});
