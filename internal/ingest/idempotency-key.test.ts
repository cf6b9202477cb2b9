import { expect, test } from '@jest/globals';
import { readIdempotencyKey } from './idempotency-key.ts';

test.each([
  ['"8e03978e-40d5-43dd-bc93-6894a57f9324"', '8e03978e-40d5-43dd-bc93-6894a57f9324'],
  ['Zm9v/YmFy+==', 'Zm9v/YmFy+=='],
  ['"with space, comma; and \\"quotes\\" \\\\"', 'with space, comma; and "quotes" \\'],
  ['', undefined],
  ['"open', undefined],
  ['"one", "two"', undefined],
  ['"a";b=c', undefined],
  ['"\\a"', undefined],
  ['k\u00e9y', undefined],
])('the Idempotency-Key %s is %j', (header, key) => {
  expect(readIdempotencyKey(header)).toEqual(
    key === undefined ? { kind: 'malformed' } : { kind: 'given', key },
  );
});
