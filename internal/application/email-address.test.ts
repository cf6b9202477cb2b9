/**
 * The rule for addresses. test/chart/refusals.test.ts checks it in the chart,
 * internal/settings/settings.test.ts in the settings.
 */
import { expect, test } from '@jest/globals';
import { addresses } from '../../test/support/email-addresses.ts';
import { isEmailAddress } from './email-address.ts';
import { parseApplication } from './parse-application.ts';

test.each(addresses)('%j is an address: %s', (email, right) => {
  expect(isEmailAddress(email)).toBe(right);
  const body = JSON.stringify({ email, business_name: 'Ann & Co', ein: '123456789' });
  // Applicants may surround it with white space.
  const { valid } = parseApplication(new TextEncoder().encode(body));
  expect(valid).toBe(isEmailAddress(email.trim()));
});
