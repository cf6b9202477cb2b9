/** One person is found in bytes of any kind, and nobody else is taken for them; masks show no more than they say. */
import { expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { Binary } from 'mongodb';
import type { Account } from '../account/account.ts';
import { maskEin, maskEmail, maskName } from './mask.ts';
import { isAccountOf, mentions, relationOf } from './person.ts';

const person = { email: 'jane+x@example.com', ein: '123456789' };

const deep = (text: string, depth: number): string => `${'{"a":['.repeat(depth)}"${text}"${']}'.repeat(depth)}`;
const json = '{"email":"jane+x@example.com"}';
const fullWidth = (text: string): string =>
  text.replace(/[!-~]/g, (letter) => String.fromCharCode(letter.charCodeAt(0) + 0xfe_e0));
const gzipped = gzipSync(json);
const base64 = (content: string | Buffer): string => Buffer.from(content as string).toString('base64');
const folded = (text: string): string => base64(text).replace(/.{76}/g, '$&\r\n');

/** Where a person can hide in a body. */
test.each<[string, string | Buffer]>([
  ['JSON', '{"email":"Jane+X@Example.com"}'],
  ['JSON with escapes', '{"email":"jane\\u002bx@example\\u002ecom"}'],
  ['broken JSON with escapes', '{"email":"jane\\u002bx@example\\u002ecom"'],
  ['JSON within JSON', JSON.stringify({ data: JSON.stringify({ email: 'jane\u002bx@example.com' }) })],
  ['JSON within JSON within JSON, escaped', JSON.stringify(JSON.stringify('{"e":"jane\\u002bx\\u0040example.com"}'))],
  ['a line of its own within a JSON string', '{"text":"write to\\njane+x@example.com"}'],
  ['JSON nested 5,000 deep', deep('jane+x@example.com', 5_000)],
  ['a key of JSON', '{"jane+x@example.com":true}'],
  ['a form', 'a=b&email=jane%2Bx%40example.com&c=d'],
  ['a form with a broken escape', '%zz&email=jane%2bx%40example.com'],
  ['a form escaped twice', 'email=jane%252Bx%2540example.com'],
  ['UTF-16', Buffer.from('["jane+x@example.com"]', 'utf16le')],
  ['UTF-16, big-endian', Buffer.from('["jane+x@example.com"]', 'utf16le').swap16()],
  ['text with bad bytes', Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(' jane+x@example.com.')])],
  ['a sentence', 'write to <jane+x@example.com>, please'],
  ['gzip', gzipped],
  ['gzip that was cut off', gzipSync(`${json}${randomBytes(40_000).toString('hex')}`).subarray(0, 20_000)],
  ['deflate', deflateSync(json)],
  ['brotli', brotliCompressSync(json)],
  ['zstd', zstdCompressSync(json)],
  ['zstd with something behind it', Buffer.concat([zstdCompressSync('nobody'), Buffer.from(json)])],
  ['base64', JSON.stringify({ data: base64(json) })],
  ['base64 in lines', folded(`${'x'.repeat(150)} jane+x@example.com ${'y'.repeat(150)}`)],
  ['gzip in base64 in base64', `{"data":"${base64(base64(gzipped))}"}`],
  ['hexadecimal digits', Buffer.from(json).toString('hex')],
  ['quoted-printable', 'email: jane=2Bx=40exam=\r\nple.com'],
  ['HTML', '<p>jane&#43;x&#x40;example.com</p>'],
  ['full-width letters', fullWidth('jane+x@example.com')],
  ['an address with invisible characters', 'jane+x\u200b@exam\u00adple.com'],
  ['an EIN', '{"ein":"123456789"}'],
  ['an EIN as a number', '{"ein":123456789}'],
  ['an EIN with a hyphen', 'ein: 12-3456789.'],
  ['an EIN with a long dash', 'ein: 12\u20133456789.'],
  ['an EIN in full-width digits', `{"ein":"${fullWidth('123456789')}"}`],
  ['an EIN in base64', `{"data":"${base64('123456789')}"}`],
])('found in %s', (_name, body) => {
  expect(mentions(person, Buffer.from(body as string))).toBe('yes');
});

test.each<[string, string | Buffer]>([
  ['a bomb', gzipSync(Buffer.alloc(20_000_000))],
  ['broken gzip', Buffer.concat([gzipped.subarray(0, 10), Buffer.from('no deflate at all')])],
  ['encrypted data', randomBytes(5_000)],
  ['encrypted data that begins like an empty brotli stream', Buffer.concat([Buffer.from([0x06]), randomBytes(5_000)])],
  ['a picture in base64', JSON.stringify({ picture: base64(randomBytes(5_000)) })],
  ['twenty layers of base64', Array.from({ length: 20 }).reduce<string>((text) => base64(text), json)],
])('listed as not searchable: %s', (_name, body) => {
  expect(mentions(person, Buffer.from(body as string))).toBe('unreadable');
  expect(relationOf(person, { body: new Binary(Buffer.from(body as string)) })).toBe('unreadable');
});

test.each([
  'janet+x@example.com',
  'mary.jane+x@example.com',
  'jane+x@example.com.au',
  'jane+x@example.community',
  'jane+xx@example.com',
  'janexx@example.com',
  'jane+x@exampleXcom',
  '1234567890',
  '0123456789',
  '12345678',
  '{"name":"xxxx"}'.replace('xxxx', 'x'.repeat(60_000)),
  deep('nobody', 5_000),
  `{"token":"eyJhbGciOiJIUzI1NiJ9.${base64('{"sub":"1"}')}.${base64(randomBytes(256))}"}`,
  '{"business_name":"Müller & Söhne","text":"line\\nline"}',
  '',
])('not found in %#', (body) => {
  expect(mentions(person, Buffer.from(body))).toBe('no');
});

test('a body made to be slow to search is given up soon', () => {
  const bombs = Array.from({ length: 40 }, () => base64(gzipSync(Buffer.alloc(900_000)))).join(' ');
  const runs = Array.from({ length: 4_000 }, (_, index) => base64(`piece ${index}`)).join(' ');
  const escapes = '\\'.repeat(65_000);
  for (const body of [bombs, runs, escapes, '%41'.repeat(21_000), 'A'.repeat(65_000), '='.repeat(65_000)]) {
    expect(['no', 'unreadable']).toContain(mentions(person, Buffer.from(body.slice(0, 65_000))));
  }
});

test('an account is theirs by what it holds, and by what it held before it was released', () => {
  const holds = { email: 'Jane+X@Example.com', ein: '999999999' };
  expect(isAccountOf(person, holds as Account)).toBe(true);
  expect(isAccountOf({ ein: '999999999' }, holds as Account)).toBe(true);
  expect(isAccountOf({ email: 'other@example.com', ein: '111111111' }, holds as Account)).toBe(false);
  const released = { email: 'released', ein: 'released', released: { ...holds, businessName: 'Any' } };
  expect(isAccountOf(person, released as Account)).toBe(true);
  expect(isAccountOf({ ein: '999999999' }, released as Account)).toBe(true);
});

test('whose record it is: the applicant decides, and only where there is none, the bytes', () => {
  const body = new Binary(Buffer.from('{"contact":"jane+x@example.com"}'));
  const other = { email: 'joe@example.com', ein: '000000001', businessName: 'Joe' };
  expect(relationOf(person, { applicant: { email: person.email } })).toBe('applicant');
  expect(relationOf(person, { applicant: { ...other, ein: person.ein } })).toBe('applicant');
  expect(relationOf(person, { applicant: other, body })).toBe('mentioned');
  expect(relationOf(person, { body })).toBe('applicant');
  expect(relationOf(person, { applicant: other })).toBe('none');
  // It waits to be processed: what the processor would understand counts.
  const waiting = Buffer.from('{"email":" JANE+x@example.com","ein":"9"}');
  expect(relationOf(person, { body: new Binary(waiting) })).toBe('applicant');
});

test.each([
  ['jane@example.com', 'j***@e***.com'],
  ['a@b.c', 'a***@b***.c'],
  ['no address', 'n***'],
  ['@x', '@***'],
  ['', '***'],
  ['\u001b[2J@x.example', '�***@x***.example'],
])('e-mail %j is shown as %s', (email, shown) => {
  expect(maskEmail(email)).toBe(shown);
});

test('EIN and name', () => {
  expect([maskEin('123456789'), maskEin('12-3'), maskEin('')]).toEqual(['*****6789', '***', '***']);
  expect([maskName(' Ada Ltd'), maskName('😀 GmbH')]).toEqual(['A***', '😀***']);
});
