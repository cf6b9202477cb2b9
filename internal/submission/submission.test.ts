/** What is stored of an idempotency key. */
import { expect, test } from '@jest/globals';
import { idempotencyDigest } from './submission.ts';

test('the same key of another partner has another digest', () => {
  const digests = [
    idempotencyDigest('demo', 'key'),
    idempotencyDigest('acme', 'key'),
    idempotencyDigest('demok', 'ey'),
  ];
  expect(new Set(digests).size).toBe(3);
  expect(digests).toEqual(digests.map(() => expect.stringMatching(/^[0-9a-f]{64}$/)));
});
