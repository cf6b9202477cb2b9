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

test.each([
  ['', 'empty_key'],
  ['a'.repeat(KEY_MIN_LENGTH - 1), 'key_too_short'],
  [newApiKey().slice(0, KEY_MIN_LENGTH), undefined],
  ['pik_evaluation_only_not_for_production', undefined],
  [newApiKey().slice(4), 'not_a_key'],
  [`${newApiKey()}"`, 'not_a_key'],
  [newApiKey().toUpperCase(), 'not_a_key'],
  [newApiKey().repeat(21).slice(0, KEY_MAX_LENGTH), undefined],
  ['a'.repeat(KEY_MIN_LENGTH), 'key_guessable'],
  ['abcabcabcabcabcabcabcabc', 'not_a_key'],
  [`sha256:${'a1'.repeat(31)}`, 'key_guessable'],
  ['acme-2026-orange-zebra-42', 'not_a_key'],
  ['https://www.acme.example.com/partners', 'not_a_key'],
  ['a'.repeat(KEY_MAX_LENGTH + 1), 'key_too_long'],
  [`${'a'.repeat(30)} `, 'key_not_printable'],
  [`${'a'.repeat(30)}\n`, 'key_not_printable'],
  [`${'a'.repeat(30)}ä`, 'key_not_printable'],
])('%j: %s', (key, problem) => {
  expect(apiKeyProblem(key)).toBe(problem);
});

const key = newApiKey();

test.each([
  ['acme-2026-orange-zebra-42-blue-9', undefined],
  [key.slice(4), undefined],
  [key, undefined],
  ['acme-2026-orange-zebra-42-blue-', 'not_a_key'],
  ['https://www.acme.example.com/partners', 'not_a_key'],
  ['amqps://acme:xK2mQ8vR4tY7@mq.example.com', 'not_a_key'],
  ['partnership-contact-2026@acme.example.com', 'not_a_key'],
  ['partner-db.cluster-abc123.eu-west-1.rds.example.com:5432', 'not_a_key'],
  ['eyJhbGciOiJIUzI1NiJ9.eyJwYXJ0bmVyIjoiYWNtZSJ9.x8Kq2Lr0', undefined],
  [`"${key.slice(4)}"`, 'not_a_key'],
  [JSON.stringify({ key }), 'not_a_key'],
  [Buffer.from(key).toString('base64'), 'not_a_key'],
  [key.slice(0, KEY_MIN_LENGTH - 1), 'key_too_short'],
])('where older keys are allowed, %j: %s', (text, problem) => {
  expect(apiKeyProblem(text, { older: true })).toBe(problem);
});

test.each([
  [Buffer.from(key).toString('base64'), 'is in base64 twice'],
  [Buffer.from(`${key}\n`).toString('base64'), 'is in base64 twice'],
  [`"${key}"`, 'stands in quotes'],
  [`'${key}'`, 'stands in quotes'],
  [`{"key": "${key}"}`, 'looks like JSON'],
  [JSON.stringify([key]), 'looks like JSON'],
  [`Bearer ${key}`, 'begins with "Bearer"'],
  ['postgres://acme:secret@db.example.com/x', 'looks like a URL'],
  ['contact@acme.example.com', 'looks like an address'],
  [`${key} ${key}`, 'has blanks'],
  [key, undefined],
  ['acme-2026-orange-zebra-42', undefined],
])('%j %s', (text, words) => {
  expect(appearance(text)).toBe(words);
});
