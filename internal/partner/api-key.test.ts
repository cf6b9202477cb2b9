import { crc32 } from 'node:zlib';
import { expect, test } from '@jest/globals';
import { KEY_MAX_LENGTH, KEY_MIN_LENGTH, apiKeyProblem, newApiKey } from './api-key.ts';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

test.each([
  [false, /^pik_([0-9A-Za-z]{40})([0-9A-Za-z]{6})$/],
  [true, /^pik_test_([0-9A-Za-z]{40})([0-9A-Za-z]{6})$/],
])(
  'a new key has prefix, random characters and a checksum for scanners; test: %s',
  (ofTests, form) => {
    const key = newApiKey({ test: ofTests });
    const [, random = '', checksum = ''] = form.exec(key) ?? [];
    const value = checksum
      .split('')
      .reduce((sum, digit) => sum * ALPHABET.length + ALPHABET.indexOf(digit), 0);
    expect(value).toBe(crc32(random));
    expect(apiKeyProblem(key)).toBeUndefined();
  },
);

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
