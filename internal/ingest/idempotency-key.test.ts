/** The Idempotency-Key header: which values are keys, and which are answered 400. */
import { expect, test } from '@jest/globals';
import { readIdempotencyKey } from './idempotency-key.ts';

test.each([
  ['"8e03978e-40d5-43dd-bc93-6894a57f9324"', '8e03978e-40d5-43dd-bc93-6894a57f9324'],
  ['8e03978e-40d5-43dd-bc93-6894a57f9324', '8e03978e-40d5-43dd-bc93-6894a57f9324'],
  ['"with space, comma; and \\"quotes\\" \\\\"', 'with space, comma; and "quotes" \\'],
  ['Zm9v/YmFy+==', 'Zm9v/YmFy+=='],
  ['a', 'a'],
  [`"${'k'.repeat(255)}"`, 'k'.repeat(255)],
  ['k'.repeat(255), 'k'.repeat(255)],
])('%s is the key %s', (header, key) => {
  expect(readIdempotencyKey(header)).toEqual({ kind: 'given', key });
});

test.each([
  '',
  '""',
  '"open',
  '"one", "two"',
  'two words',
  '"a";b=c',
  '"\\a"',
  'k\u00e9y',
  'k'.repeat(256),
])('%j is malformed', (header) => {
  expect(readIdempotencyKey(header)).toEqual({ kind: 'malformed' });
});

test('without the header there is no key', () => {
  expect(readIdempotencyKey(undefined)).toEqual({ kind: 'none' });
});
