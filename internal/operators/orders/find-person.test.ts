/** Finds a person in the text of any body, but no address or number that only looks similar. */
import { expect, test } from '@jest/globals';
import { gzipSync } from 'node:zlib';
import { mentions } from './find-person.ts';

const person = { email: 'jane@x.test', ein: '123456789' };
const wide = (text: string): Buffer => Buffer.from(text, 'utf16le');

test.each<[string, string | Buffer]>([
  ['JSON', '{"email":"Jane@X.Test"}'],
  ['JSON with escapes', '{"email":"jane\\u0040x\\u002etest"}'],
  ['JSON within JSON', JSON.stringify({ data: JSON.stringify({ email: 'jane@x.test' }) })],
  ['a line of its own within a JSON string', '{"text":"write to\\njane@x.test\\nsoon"}'],
  ['JSON nested 5,000 deep', `${'{"a":['.repeat(5_000)}"jane@x.test"${']}'.repeat(5_000)}`],
  ['a form', 'a=b&email=jane%40x.test&c=d'],
  ['UTF-16', wide('["jane@x.test"]')],
  ['UTF-16, big-endian', wide('["jane@x.test"]').swap16()],
  ['text with bad bytes', Buffer.from([0xff, ...Buffer.from(' jane@x.test.'), 0xc3])],
  ['text in two scripts', 'お問い合わせはjane@x.testまで'],
  ['an EIN as a number', '{"ein":123456789}'],
  ['an EIN with a hyphen', 'ein: 12-3456789.'],
  ['an EIN in UTF-16', wide('ein:123456789')],
])('found in %s', (_name, body) => {
  expect(mentions(person, Buffer.from(body as string))).toBe(true);
});

test.each([
  'maryjane@x.test',
  'mary.jane@x.test',
  'email=mary%2Bjane%40x.test',
  'jane@x.test.au',
  'jane@x.test-y.example',
  'jane2@x.test',
  '1234567890',
  '12--3456789',
  '',
])('not found in %j', (body) => {
  expect(mentions(person, Buffer.from(body))).toBe(false);
  expect(mentions(person, wide(body))).toBe(false);
});

test('an EIN that begins with zero is also found as a number without the zero', () => {
  for (const body of ['{"ein":12345678}', '{"ein":"012345678"}', '01-2345678']) {
    expect(mentions({ ein: '012345678' }, Buffer.from(body))).toBe(true);
  }
  expect(mentions({ ein: '012345678' }, Buffer.from('{"ein":912345678}'))).toBe(false);
});

test('compressed and encoded text is not searched', () => {
  const json = '{"email":"jane@x.test"}';
  for (const body of [gzipSync(json), Buffer.from(Buffer.from(json).toString('base64'))]) {
    expect(mentions(person, body)).toBe(false);
  }
});
