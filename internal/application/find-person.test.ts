/** Finds a person in the text of any body, but no address or number that only looks similar. */
import { expect, test } from '@jest/globals';
import { gzipSync } from 'node:zlib';
import { mentions } from './find-person.ts';

const person = { email: 'jane@x.test', ein: '123456789' };
const wide = (text: string): Buffer => Buffer.from(text, 'utf16le');
const bom = Buffer.from([0xff, 0xfe]);
const both = (text: string): Buffer => Buffer.concat([bom, wide(text)]);

test.each<[string, string | Buffer]>([
  ['JSON', '{"email":"Jane@X.Test"}'],
  ['JSON in single quotes', "{'email': 'jane@x.test'}"],
  ['bytes as Python prints them', "b'jane@x.test'"],
  ['JSON with escapes', '{"email":"jane\\u0040x\\u002etest"}'],
  ['JSON with escaped slashes around', '{"a":"\\/jane@x.test\\/"}'],
  ['broken JSON with escapes', '{"email":"jane\\u0040x.test"'],
  ['JSON within JSON', JSON.stringify({ data: JSON.stringify({ email: 'jane@x.test' }) })],
  ['a line of its own within a JSON string', '{"text":"write to\\njane@x.test\\nsoon"}'],
  ['JSON nested 5,000 deep', `${'{"a":['.repeat(5_000)}"jane@x.test"${']}'.repeat(5_000)}`],
  ['a key of JSON', '{"jane@x.test":true}'],
  ['a form', 'a=b&email=jane%40x.test&c=d'],
  ['a form with other letters for its digits', 'email=%6aane%40x%2Etest'],
  ['a form with a blank', 'note=write+to+jane%40x.test+soon'],
  ['a form with a broken escape', '%zz&email=jane%40x.test'],
  ['a form in JSON', '{"query":"email=jane\\u002540x.test"}'],
  ['a form without escapes', 'email=jane@x.test&c=d'],
  ['UTF-16', wide('["jane@x.test"]')],
  ['UTF-16 with its mark', both('["jane@x.test"]')],
  ['UTF-16, big-endian', wide('["jane@x.test"]').swap16()],
  ['UTF-16, big-endian, with its mark', both('["jane@x.test"]').swap16()],
  ['UTF-16 with escapes', wide('{"email":"jane\\u0040x.test"}')],
  ['UTF-16 behind a single byte', Buffer.concat([Buffer.from('>'), wide('["jane@x.test"]')])],
  ['text with bad bytes', Buffer.from([0xff, ...Buffer.from(' jane@x.test.'), 0xc3])],
  ['text in two scripts', 'お問い合わせはjane@x.testまで'],
  ['a sentence', 'write to <jane@x.test>, please. Or mailto:jane@x.test?subject=x'],
  ['the end of a sentence', 'Write to jane@x.test. Thanks'],
  ['dots before', 'contact ... jane@x.test'],
  ['CSV', '1;jane@x.test;2'],
  ['a path', 'C:\\users\\bjane@x.test;\\jane@x.test'],
  ['an EIN', '{"ein":"123456789"}'],
  ['an EIN as a number', '{"ein":123456789}'],
  ['an EIN with a hyphen', 'ein: 12-3456789.'],
  ['an EIN with a long dash', 'ein: 12\u20133456789.'],
  ['an EIN in a form', 'ein=12%2D3456789&'],
  ['an EIN behind an escaped blank', 'ein%20123456789'],
  ['an EIN in UTF-16', wide('ein:123456789')],
])('found in %s', (_name, body) => {
  expect(mentions(person, Buffer.from(body as string))).toBe(true);
});

test.each([
  'maryjane@x.test',
  'mary.jane@x.test',
  'mary-jane@x.test',
  'mary--jane@x.test',
  'mary_jane@x.test',
  'mary+jane@x.test',
  'email=mary%2Bjane%40x.test',
  '{"email":"mary\\u002bjane@x.test"}',
  'email=mary+jane@x.test',
  'jane@x.test.au',
  'jane@x.testing',
  'jane@x.test-y.example',
  'jane2@x.test',
  'jane@xxtest',
  'jane@',
  '@x.test',
  '1234567890',
  '0123456789',
  '%30123456789',
  '12345678',
  '12--3456789',
  '',
])('not found in %j', (body) => {
  expect(mentions(person, Buffer.from(body))).toBe(false);
  expect(mentions(person, wide(body))).toBe(false);
});

test('an EIN that begins with zero is found as the number that lost it', () => {
  for (const body of ['{"ein":12345678}', '{"ein":"012345678"}', '01-2345678']) {
    expect(mentions({ ein: '012345678' }, Buffer.from(body))).toBe(true);
  }
  expect(mentions({ ein: '012345678' }, Buffer.from('{"ein":912345678}'))).toBe(false);
});

test('what is compressed or encoded is not searched', () => {
  const json = '{"email":"jane@x.test"}';
  for (const body of [gzipSync(json), Buffer.from(Buffer.from(json).toString('base64'))]) {
    expect(mentions(person, body)).toBe(false);
  }
});

test('what is neither an address nor an EIN is not searched for', () => {
  expect(mentions({ email: 'none' }, Buffer.from('none'))).toBe(false);
  expect(mentions({ ein: 'none' }, Buffer.from('none'))).toBe(false);
  expect(mentions({}, Buffer.from('none'))).toBe(false);
});
