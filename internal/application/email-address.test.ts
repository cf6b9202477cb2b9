/**
 * One rule for addresses. The chart's is in test/chart/refusals.test.ts, the command's in
 * test/integration/cli-change.test.ts.
 */
import { expect, test } from '@jest/globals';
import { addresses } from '../../test/support/email-addresses.ts';
import { isEmailAddress } from './email-address.ts';
import { parseApplication } from './parse-application.ts';

test.each(addresses)('%j is an address: %s', (email, right) => {
  expect(isEmailAddress(email)).toBe(right);
  const body = JSON.stringify({ email, business_name: 'Ann & Co', ein: '123456789' });
  // Applicants may put white space around it.
  const { valid } = parseApplication(new TextEncoder().encode(body));
  expect(valid).toBe(isEmailAddress(email.trim()));
});
