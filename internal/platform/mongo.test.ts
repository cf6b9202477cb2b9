/** The one place that reads duplicate-key messages, for both servers' wording. */
import { expect, test } from '@jest/globals';
import { duplicateKeyIndex, isDuplicateKey } from './mongo.ts';

const duplicate = (message: string): Error => Object.assign(new Error(message), { code: 11_000 });

test.each([
  [
    'MongoDB',
    'E11000 duplicate key error collection: db.accounts index: accounts_ein dup key: { ein: "x" }',
    'accounts_ein',
  ],
  [
    'MongoDB, old form',
    'E11000 duplicate key error index: db.accounts.$accounts_email dup key: { : "x" }',
    'accounts_email',
  ],
  ['FerretDB', "Duplicate key violation on the requested collection: Index 'accounts_request'", 'accounts_request'],
  ['no name in it', 'E11000 something else', 'unknown'],
])('%s: the index is named', (_server, message, index) => {
  expect(duplicateKeyIndex(duplicate(message))).toBe(index);
});

test('another error is none', () => {
  expect(duplicateKeyIndex(Object.assign(new Error('index: a dup key'), { code: 50 }))).toBeUndefined();
  expect(duplicateKeyIndex(undefined)).toBeUndefined();
  expect(isDuplicateKey(null)).toBe(false);
  expect(isDuplicateKey(duplicate(''))).toBe(true);
});
