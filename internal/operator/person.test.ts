/** One person is found in bytes of any kind, and nobody else is taken for them; masks show no more than they say. */
import { expect, test } from '@jest/globals';
import { Binary } from 'mongodb';
import { maskEin, maskEmail, maskName } from './mask.ts';
import { mentions, relationOf } from './person.ts';

const person = { email: 'jane+x@example.com', ein: '123456789' };

test.each<[string, string | Buffer]>([
  ['JSON', '{"email":"Jane+X@Example.com"}'],
  ['JSON with escapes', '{"email":"jane\\u002bx@example\\u002ecom"}'],
  ['broken JSON with escapes', '{"email":"jane\\u002bx@example\\u002ecom"'],
  ['a form', 'a=b&email=jane%2Bx%40example.com&c=d'],
  ['a form with a broken escape', '%zz&email=jane%2bx%40example.com'],
  ['UTF-16', Buffer.from('["jane+x@example.com"]', 'utf16le')],
  ['text with bad bytes', Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from(' jane+x@example.com.')])],
  ['a sentence', 'write to <jane+x@example.com>, please'],
  ['an EIN', '{"ein":"123456789"}'],
  ['an EIN as a number', '{"ein":123456789}'],
  ['an EIN with a hyphen', 'ein: 12-3456789.'],
])('found in %s', (_name, body) => {
  expect(mentions(person, Buffer.from(body as string))).toBe(true);
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
])('not found in %s', (body) => {
  expect(mentions(person, Buffer.from(body))).toBe(false);
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
