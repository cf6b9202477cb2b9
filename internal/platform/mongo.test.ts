/** What counts as meeting a unique index: the code alone, because MongoDB and FerretDB word their messages differently. */
import { expect, test } from '@jest/globals';
import { isDuplicateKey } from './mongo.ts';

test.each([
  ['MongoDB', 'E11000 duplicate key error collection: db.accounts index: accounts_ein dup key: { ein: "x" }'],
  ['FerretDB', "Duplicate key violation on the requested collection: Index 'accounts_request'"],
])('%s: a duplicate key is recognised', (_server, message) => {
  expect(isDuplicateKey(Object.assign(new Error(message), { code: 11_000 }))).toBe(true);
  expect(isDuplicateKey(Object.assign(new Error(message), { code: 50 }))).toBe(false);
});

test.each([undefined, null, 'E11000', {}])('%p is none', (error) => {
  expect(isDuplicateKey(error)).toBe(false);
});
