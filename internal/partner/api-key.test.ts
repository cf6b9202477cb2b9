import { crc32 } from 'node:zlib';
import { expect, test } from '@jest/globals';
import { KEY_MAX_LENGTH, KEY_MIN_LENGTH, apiKeyProblem, appearance, newApiKey } from './api-key.ts';

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

const key = newApiKey();
const OTHER_FORM = 'not_a_key';

test.each<[text: string, problem: string | undefined, older: string | undefined]>([
  ['', 'empty_key', 'empty_key'],
  ['a'.repeat(KEY_MIN_LENGTH - 1), 'key_too_short', 'key_too_short'],
  ['a'.repeat(KEY_MIN_LENGTH), 'key_guessable', 'key_guessable'],
  [`sha256:${'a1'.repeat(31)}`, 'key_guessable', 'key_guessable'],
  ['a'.repeat(KEY_MAX_LENGTH + 1), 'key_too_long', 'key_too_long'],
  [`${'a'.repeat(30)}\n`, 'key_not_printable', 'key_not_printable'],
  [key, undefined, undefined],
  [key.slice(0, KEY_MIN_LENGTH), OTHER_FORM, undefined],
  [key.repeat(21).slice(0, KEY_MAX_LENGTH), OTHER_FORM, undefined],
  [key.toLowerCase(), OTHER_FORM, undefined],
  [`${key}0`, OTHER_FORM, undefined],
  [`${key.slice(4, 44)}${key.slice(4)}`, OTHER_FORM, undefined],
  [`pik_${'a'.repeat(46)}`, 'key_guessable', 'key_guessable'],
  ['pik_test_-------------------', 'key_guessable', 'key_guessable'],
  ['pik_REPLACE-WITH-A-KEY-OF-40-RANDOM-CHARACTERS', OTHER_FORM, OTHER_FORM],
  ['pik_evaluation_only_not_for_production', undefined, undefined],
  [key.slice(4), OTHER_FORM, undefined],
  ['acme-2026-orange-zebra-42-blue-9', OTHER_FORM, undefined],
  ['eyJhbGciOiJIUzI1NiJ9.eyJwYXJ0bmVyIjoiYWNtZSJ9.x8Kq2Lr0', OTHER_FORM, undefined],
  ['acme-2026-orange-zebra-42-blue-', OTHER_FORM, OTHER_FORM],
  ['https://www.acme.example.com/partners', OTHER_FORM, OTHER_FORM],
  ['partner-db.cluster-abc123.eu-west-1.rds.example.com:5432', OTHER_FORM, OTHER_FORM],
])('%j: %s, and where older keys are allowed %s', (text, problem, older) => {
  expect([apiKeyProblem(text), apiKeyProblem(text, { older: true })]).toEqual([problem, older]);
});

test.each([
  [Buffer.from(`${key}\n`).toString('base64'), 'is in base64 twice'],
  [`"${key}"`, 'stands in quotes'],
  [`{"key": "${key}"}`, 'looks like JSON'],
  [`Bearer ${key}`, 'begins with "Bearer"'],
  ['postgres://acme:secret@db.example.com/x', 'looks like a URL'],
  ['contact@acme.example.com', 'looks like an address'],
  [`${key} ${key}`, 'has blanks'],
  [key, undefined],
  ['acme-2026-orange-zebra-42', undefined],
])('%j %s', (text, words) => {
  expect(appearance(text)).toBe(words);
});
