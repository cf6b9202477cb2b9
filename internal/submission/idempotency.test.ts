/** What is stored of an idempotency key. */
import { expect, test } from '@jest/globals';
import { idempotencyDigest } from './idempotency.ts';

test('the same key of another partner has another digest', () => {
  const digests = [
    idempotencyDigest('demo', 'submitApplication', 'key'),
    idempotencyDigest('acme', 'submitApplication', 'key'),
    idempotencyDigest('demok', 'submitApplication', 'ey'),
  ];
  expect(new Set(digests).size).toBe(3);
  expect(digests).toEqual(digests.map(() => expect.stringMatching(/^[0-9a-f]{64}$/)));
});
