/** A receipt says what was received, and what was changed in it or in the body is refused. */
import { generateKeyPairSync, hash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { systemClock } from '../platform/process/clock.ts';
import {
  bodyFault,
  checkReceipt,
  ReceiptSigner,
  publishedSet,
  readKeySet,
  signingFault,
} from './receipt.ts';

const ISSUER = 'https://api.example.com/api/v1';
const body = Buffer.from('{"email":"ada@example.com","business_name":"Ada Ltd","ein":"123456789"}');
const record = {
  _id: 'req_01m7yefdj3fantjpk5mzvj8mwh',
  partnerId: 'acme',
  receivedAt: new Date('2026-11-29T04:30:00.123Z'),
  bodySha256: hash('sha256', body, 'hex'),
  bodyBytes: body.length,
};

const newKey = (from?: string) => ({
  ...generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'jwk' }),
  ...(from === undefined ? {} : { not_before: from }),
});
const setOf = (...keys: object[]): string => JSON.stringify({ issuer: ISSUER, keys });
const clockAt = (time: string) => ({ ...systemClock, now: () => new Date(time) });
const signWith = (set: string, at = '2026-11-29T04:30:01Z'): string | undefined =>
  new ReceiptSigner({ keys: readKeySet(set), clock: clockAt(at) }).sign(record);

test('a receipt is checked with what is published, and no other byte passes', () => {
  const set = setOf(newKey());
  const published = JSON.stringify(publishedSet(readKeySet(set)));
  expect(published).not.toMatch(/"d"|issuer/);
  const keys = readKeySet(published);
  const text = signWith(set)!;
  const { receipt } = checkReceipt(text, keys);
  expect(receipt).toEqual({
    iss: ISSUER,
    partner: 'acme',
    request_id: record._id,
    received_at: '2026-11-29T04:30:00.123Z',
    body_sha256: record.bodySha256,
    body_length: body.length,
  });
  expect(bodyFault(receipt!, body)).toBeUndefined();
  const flipped = (bytes: Buffer): Buffer[] =>
    Array.from({ length: bytes.length * 8 }, (_, bit) => {
      const copy = Buffer.from(bytes);
      copy[bit >> 3]! ^= 1 << (bit & 7);
      return copy;
    });
  const passed = [
    ...flipped(Buffer.from(text)).filter(
      (bytes) => checkReceipt(bytes.toString('latin1'), keys).receipt !== undefined,
    ),
    ...flipped(body).filter((bytes) => bodyFault(receipt!, bytes) === undefined),
  ];
  expect(passed).toEqual([]);
});

test.each<[string, (text: string) => string, RegExp]>([
  ['nothing', () => '', /three parts/],
  ['cut off', (text) => text.slice(0, -2), /signature is wrong/],
  ['a part more', (text) => `${text}.e30`, /three parts/],
  ['much too long', (text) => text.padEnd(1e6, 'A'), /three parts/],
  ['other spelling', (text) => `${text}==`, /three parts/],
  ['no algorithm', withHeader({ alg: 'none' }), /its header/],
  ['another algorithm', withHeader({ alg: 'HS256' }), /its header/],
  ['another type', withHeader({ typ: 'JWT' }), /its header/],
  ['an unknown extension', withHeader({ crit: ['b64'], b64: false }), /its header/],
  ['another key', withHeader({ kid: 'other' }), /not among the keys/],
  ['a key of its own', withHeader({ jwk: newKey() }), /signature is wrong/],
])('refused: %s', (_, change, why) => {
  const set = setOf(newKey());
  const { fault } = checkReceipt(change(signWith(set)!), readKeySet(set));
  expect(fault).toMatch(why);
});

function withHeader(header: object): (text: string) => string {
  return (text) => {
    const [head = '', ...rest] = text.split('.');
    const before = JSON.parse(Buffer.from(head, 'base64url').toString()) as object;
    const changed = Buffer.from(JSON.stringify({ ...before, ...header })).toString('base64url');
    return [changed, ...rest].join('.');
  };
}

test('of several keys the last that has begun signs, and retired ones still count', () => {
  const [old, now, next] = [
    newKey(),
    newKey('2026-11-29T00:00:00Z'),
    newKey('2026-11-30T00:00:00Z'),
  ];
  const { d: _, ...retired } = old;
  const before = setOf(old);
  const after = setOf(next, retired, now);
  const kids = readKeySet(after).keys.map(({ kid }) => kid);
  const kidOf = (text = ''): unknown =>
    (JSON.parse(Buffer.from(text.split('.')[0]!, 'base64url').toString()) as { kid: string }).kid;
  expect(kidOf(signWith(after))).toBe(kids[1]);
  expect(kidOf(signWith(after, '2026-11-30T00:00:00Z'))).toBe(kids[2]);
  // The clock is set back.
  expect(kidOf(signWith(after))).toBe(kids[1]);
  expect(signWith(after, '2026-11-28T00:00:00Z')).toBeUndefined();
  // A pod of before the rotation, and one that already has the next key.
  expect(checkReceipt(signWith(before)!, readKeySet(after)).receipt).toBeDefined();
  expect(checkReceipt(signWith(after)!, readKeySet(before)).fault).toMatch(/not among the keys/);
  const foreign = readKeySet(JSON.stringify({ issuer: 'https://other.example', keys: [old] }));
  expect(checkReceipt(signWith(before)!, foreign).fault).toMatch(/another issuer/);
});

test.each<[string, string, RegExp]>([
  ['text', 'secret', /^is not JSON$/],
  ['no keys', '{"keys":[]}', /keys is wrong/],
  ['another curve', setOf({ ...newKey(), crv: 'P-384' }), /keys\.0\.crv is wrong/],
  ['a time without a zone', setOf(newKey('2026-11-29')), /keys\.0\.not_before/],
  ['no point', setOf({ ...newKey(), x: 'A'.repeat(43) }), /keys\.0 is no key/],
  ['another half', setOf({ ...newKey(), d: newKey().d }), /keys\.0 is no key/],
  ['a key twice', twice(), /twice/],
  ['no issuer', JSON.stringify({ keys: [newKey()] }), /no issuer/],
  ['nothing private', JSON.stringify(publishedWithIssuer()), /no private key/],
])('keys that cannot sign: %s', (_, text, why) => {
  expect(signingFault(text)).toMatch(why);
});

function twice(): string {
  const key = newKey();
  return setOf(key, key);
}

function publishedWithIssuer(): object {
  return { issuer: ISSUER, ...publishedSet(readKeySet(setOf(newKey()))) };
}
