import { expect, test } from '@jest/globals';
import { normalizeEmail } from './fields.ts';

test.each([
  ['Ann@Example.COM', 'ann@example.com'],
  ['  ann@example.com\n', 'ann@example.com'],
  ['ANN.b+Tag@example.com', 'ann.b+tag@example.com'],
])('%j is the same applicant as %j', (given, key) => {
  expect(normalizeEmail(given)).toBe(key);
});

test('addresses that differ by dots or a tag are different applicants', () => {
  const keys = ['ann.b@example.com', 'annb@example.com', 'ann.b+1@example.com'].map(normalizeEmail);
  expect(new Set(keys).size).toBe(keys.length);
});
