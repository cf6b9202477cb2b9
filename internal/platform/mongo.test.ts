/**
 * Options of a client, and duplicate keys: only the code counts, because MongoDB and FerretDB word
 * their messages differently.
 */
import { expect, test } from '@jest/globals';
import { createMongo, isDuplicateKey } from './mongo.ts';

test.each([
  [
    'MongoDB',
    'E11000 duplicate key error collection: db.accounts index: accounts_ein dup key: { ein: "x" }',
  ],
  ['FerretDB', "Duplicate key violation on the requested collection: Index 'accounts_request'"],
])('%s: a duplicate key is recognised', (_server, message) => {
  expect(isDuplicateKey(Object.assign(new Error(message), { code: 11_000 }))).toBe(true);
  expect(isDuplicateKey(Object.assign(new Error(message), { code: 50 }))).toBe(false);
});

test.each([undefined, null, 'E11000', {}])('%p is none', (error) => {
  expect(isDuplicateKey(error)).toBe(false);
});

test.each([
  '',
  'w=0',
  'W=1&journal=false',
  'j=false&fsync=true',
  'wtimeout=1&wtimeoutMS=1',
  '%77=1',
  'w=1&appName=kept%2Bas+it%20is&j=false',
])('a URI with %j takes nothing from the write concern, and keeps the rest', (options) => {
  const client = createMongo(
    `mongodb://user:p%3Fw%3D1@127.0.0.1/?${options}&maxIdleTimeMS=77`,
    'test',
  );
  expect(client.options.writeConcern).toMatchObject({
    w: 'majority',
    journal: true,
    wtimeoutMS: 9_000,
  });
  expect(client.options).toMatchObject({
    maxIdleTimeMS: 77,
    appName: 'test',
    credentials: { password: 'p?w=1' },
  });
});
