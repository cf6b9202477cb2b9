/** Parses a body into an application, or into all reasons to reject it. */
import { expect, test } from '@jest/globals';
import { parseApplication, hintsOn } from './parse-application.ts';

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

// email-address.test.ts has the rule for addresses.
test.each<[string, string, unknown[]]>([
  ['email', 'too_long', [longAddress(255), `${'a.'.repeat(30_000)}@`]],
  ['ein', 'invalid_format', ['12345678', '1234567890', '12-3456789', '１２３４５６７８９', '']],
  ['ein', 'invalid_format', ['123456789\n', ' 123456789']],
  ['ein', 'wrong_type', [123_456_789, null, ['123456789']]],
  ['business_name', 'blank', ['', ' ', '\u3000', '\u200b\u200d', '\ufeff', '\0', '\u3164']],
  ['business_name', 'blank', ['\ud83d', '\u0301', '-', '🚀']],
  ['business_name', 'too_long', [x(1_001)]],
])('%s is refused as %s: %j', (field, code, values) => {
  for (const value of values)
    expect([value, faults({ ...good, [field]: value })]).toEqual([value, [`${field} ${code}`]]);
});

test.each(['ännä@example.com', 'ann@exämple.com'])(
  '%j is rejected with the right way to write it',
  (email) => {
    const message =
      'email must be written in ASCII; an internationalised domain goes in its xn-- form.';
    expect(parse({ ...good, email })).toMatchObject({
      valid: false,
      reasons: [{ field: 'email', code: 'invalid_format', message }],
    });
  },
);

test.each([' ', '\u00a0', '\u200b', '\u202e', '\u2068', '\ufeff'])(
  '%j is removed around an address and rejected inside it',
  (mark) => {
    expect(parse({ ...good, email: `${mark} ${mark}${good.email}${mark}` })).toMatchObject({
      application: { email: good.email },
    });
    expect(parse({ ...good, ein: 1, email: `${mark}${good.email}` })).toMatchObject({
      claimed: { email: good.email },
    });
    expect(faults({ ...good, email: `ann${mark}@example.com` })).toEqual(['email invalid_format']);
  },
);

test('a valid application keeps its values as given', () => {
  const names = [' A ', '\u200bA', '株式会社', '7', '🚀 A', '<script>', 'a\r\nb', x(1_000)];
  for (const businessName of names) {
    expect(parse({ ...good, business_name: businessName })).toMatchObject({
      valid: true,
      application: { businessName, ein: good.ein },
    });
  }
  expect(faults({ ...good, email: longAddress(254), ein: '000000000', $where: 'x' })).toEqual([]);
});

test('every fault is reported, not only the first', () => {
  expect(faults({ email: 'ann', business_name: ' ', ein: 123_456_789 })).toEqual([
    'email invalid_format',
    'business_name blank',
    'ein wrong_type',
  ]);
  expect(faults({})).toEqual(['email missing', 'business_name missing', 'ein missing']);
});

test('the last of repeated keys counts, and __proto__ adds no field', () => {
  const own = JSON.stringify(good).slice(1);
  for (const text of [`{"email":"first@example.com",${own}`, `{"__proto__":{"email":"x"},${own}`]) {
    expect(parseApplication(bytes(text))).toMatchObject({
      valid: true,
      application: { email: good.email },
    });
  }
  expect(parseApplication(bytes(`{"__proto__":{${own}}`))).toMatchObject({ valid: false });
  expect(({} as Record<string, unknown>)['email']).toBeUndefined();
});

/* Hints are rare, and no reason. */

test.each([
  ['123456789', 'ada@example.com', []],
  ['001234567', 'ada@example.com', ['ein unassigned_prefix']],
  ['971234567', 'ada@gmial.com', ['ein unassigned_prefix', 'email mistyped_domain']],
  ['311234567', 'ada@GMAIL.CON', ['email mistyped_domain']],
  ['00-1234567', 'gmial.com@example.com', []],
  ['', 'ada@ymail.com', []],
  [undefined, undefined, []],
])('%s and %s', (ein, email, expected) => {
  const hints = hintsOn({
    ...(ein === undefined ? {} : { ein }),
    ...(email === undefined ? {} : { email }),
  });
  expect(hints.map(({ field, code }) => `${field} ${code}`)).toEqual(expected);
  for (const { message } of hints) expect(message).not.toMatch(/\d|gmial|con\b/i);
});

test('each assigned prefix has no hint', () => {
  const prefixes = Array.from({ length: 100 }, (_, n) => String(n).padStart(2, '0'));
  const hinted = prefixes.filter((prefix) => hintsOn({ ein: `${prefix}1234567` }).length > 0);
  expect(hinted.length).toBe(17);
  expect(hinted).not.toContain('31');
});
