import { expect, test } from '@jest/globals';
import { normalizeEmail, isEmailAddress } from './fields.ts';
import { addresses } from '../../test/support/email-addresses.ts';
import { parseApplication } from './parse-application.ts';

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

/*
 * The rule for addresses. test/chart/refusals.test.ts checks it in the chart,
 * internal/settings/settings.test.ts in the settings.
 */

test.each(addresses)('%j is an address: %s', (email, right) => {
  expect(isEmailAddress(email)).toBe(right);
  const body = JSON.stringify({ email, business_name: 'Ann & Co', ein: '123456789' });
  // Applicants may surround it with white space.
  const { valid } = parseApplication(new TextEncoder().encode(body));
  expect(valid).toBe(isEmailAddress(email.trim()));
});
