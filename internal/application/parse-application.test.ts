import { describe, expect, test } from '@jest/globals';
import { parseApplication, parseJsonObject } from './parse-application.ts';

const good = { email: 'ann@example.com', business_name: 'Ann & Co', ein: '123456789' };
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const parse = (fields: object): ReturnType<typeof parseApplication> =>
  parseApplication(bytes(JSON.stringify(fields)));

/** Returns the field and code of each reason; empty for a valid application. */
function faults(fields: object): string[] {
  const parsed = parse(fields);
  return parsed.valid ? [] : parsed.reasons.map(({ field, code }) => `${field} ${code}`);
}

const x = (count: number): string => 'x'.repeat(count);
/** Returns an address of `length` characters whose parts are within their own limits. */
const longAddress = (length: number): string => {
  const domain = `@${x(60)}.${x(63)}.${x(63)}.com`;
  return x(length - domain.length) + domain;
};

describe('email', () => {
  test.each(['ännä@example.com', 'ann@exämple.com'])(
    '%j is refused with a word on how to write it',
    (email) => {
      const parsed = parse({ ...good, email });
      const message =
        'email must be written in ASCII; an internationalised domain goes in its xn-- form.';
      expect(parsed).toMatchObject({
        valid: false,
        reasons: [{ field: 'email', code: 'invalid_format', message }],
      });
    },
  );

  test('254 characters are allowed, 255 are not, and the hostile length costs no time', () => {
    expect(longAddress(254)).toHaveLength(254);
    expect(faults({ ...good, email: longAddress(255) })).toEqual(['email too_long']);
    expect(faults({ ...good, email: `${'a.'.repeat(30_000)}@` })).toEqual(['email too_long']);
  });
});

describe('ein', () => {
  test.each(['123456789', '000000000'])('%s is valid and stays as it is', (ein) => {
    expect(parse({ ...good, ein })).toMatchObject({ valid: true, application: { ein } });
  });

  test.each([
    '12345678',
    '1234567890',
    '12-3456789',
    '123456789\n',
    ' 123456789',
    '１２３４５６７８９',
    '',
  ])('%j is invalid', (ein) => {
    expect(faults({ ...good, ein })).toEqual(['ein invalid_format']);
  });

  test.each([123_456_789, null])('%j is no string', (ein) => {
    expect(faults({ ...good, ein })).toEqual(['ein wrong_type']);
  });
});

describe('business_name', () => {
  test.each([' A ', '\u200bA', '株式会社', '7', '🚀 A', '<script>', 'a\r\nb', x(1_000)])(
    '%j is valid and kept as given',
    (name) => {
      expect(parse({ ...good, business_name: name })).toMatchObject({
        valid: true,
        application: { businessName: name },
      });
    },
  );

  test.each([
    '',
    ' ',
    '\u3000',
    '\u200b\u200d',
    '\ufeff',
    '\0',
    '\u3164',
    '\ud83d',
    '\u0301',
    '-',
    '🚀',
  ])('%j is blank', (name) => {
    expect(faults({ ...good, business_name: name })).toEqual(['business_name blank']);
  });

  test('1,001 characters are too many', () => {
    expect(faults({ ...good, business_name: x(1_001) })).toEqual(['business_name too_long']);
  });
});

test('every fault is told, not only the first', () => {
  expect(faults({ email: 'ann', business_name: ' ', ein: 123_456_789 })).toEqual([
    'email invalid_format',
    'business_name blank',
    'ein wrong_type',
  ]);
  expect(faults({})).toEqual(['email missing', 'business_name missing', 'ein missing']);
  expect(faults({ email: null, business_name: [], ein: {} })).toEqual([
    'email wrong_type',
    'business_name wrong_type',
    'ein wrong_type',
  ]);
});

test('of repeated keys the last one counts', () => {
  const text =
    '{"email":"first@example.com","email":"last@example.com","business_name":"A","ein":"123456789"}';
  expect(parseApplication(bytes(text))).toMatchObject({
    valid: true,
    application: { email: 'last@example.com' },
  });
});

test('__proto__ gives a field to nobody', () => {
  const text = `{"__proto__":${JSON.stringify(good)}}`;
  expect(parseApplication(bytes(text))).toMatchObject({ valid: false });
  expect(({} as Record<string, unknown>)['email']).toBeUndefined();
  expect(
    parseApplication(bytes(`{"__proto__":{"email":"x"},${JSON.stringify(good).slice(1)}`)),
  ).toMatchObject({
    valid: true,
    application: { email: good.email },
  });
});

describe('the body', () => {
  test.each(['{}', ' { } ', '\ufeff{}', '{"__proto__":null}'])('%j is an object', (text) => {
    expect(parseJsonObject(bytes(text))).toBeDefined();
  });

  test.each(['', '[]', '"{}"', 'null', '{', '{}{}', "{'a':1}", '{"a":1,}', '\ufeff\ufeff{}'])(
    '%j is none',
    (text) => {
      expect(parseJsonObject(bytes(text))).toBeUndefined();
    },
  );

  test('bytes that are not UTF-8 are none, and an unread body reports all fields missing', () => {
    const broken = Uint8Array.from([...bytes('{"a":"'), 0xff, ...bytes('"}')]);
    expect(parseJsonObject(broken)).toBeUndefined();
    expect(parseApplication(broken)).toMatchObject({ valid: false });
    expect(parseApplication(new Uint8Array())).toMatchObject({ valid: false });
    // A failed decode must not affect the next.
    expect(parseJsonObject(bytes('{"a":"ä"}'))).toEqual({ a: 'ä' });
  });
});
