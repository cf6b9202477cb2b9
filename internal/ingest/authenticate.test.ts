/** Turns an Authorization header into a partner or an answer. */
import { describe, expect, test } from '@jest/globals';
import { HANG_MS } from '../../test/support/wait.ts';
import type { KeyLookup } from '../partner/key-cache.ts';
import { addressCheck, type KeyTerms } from '../partner/key-terms.ts';
import { authenticate as authenticateFrom } from './authenticate.ts';
import { later } from '../platform/process/clock.ts';
import { errors } from './errors.ts';

const now = new Date('2026-11-22T12:00:00Z');
const known = (partnerId: string, active: boolean, terms: KeyTerms = {}): KeyLookup => ({
  known: true,
  keyId: 'abcdef012345',
  partnerId,
  active,
  revoked: false,
  otherMode: false,
  terms,
  admits: addressCheck(terms),
});
const lookup = (key: string): KeyLookup => {
  if (key === 'good') return known('demo', true, { maxPerMinute: 5 });
  if (key === 'dormant') return known('sleeper', false);
  return { known: false };
};
const authenticate = (header: string | undefined, find = lookup, address = '192.0.2.7') =>
  authenticateFrom(header, address, {
    keys: { loaded: true, lookup: find },
    clock: { now: () => now, monotonicMs: () => 0 },
  });

describe('authenticate', () => {
  test.each([
    [
      errors.keyMissing,
      [undefined, '', 'Bearer', 'Bearer \t ', 'good', 'Bearergood', 'Basic good'],
    ],
    [errors.keyInvalid, ['Bearer bad', 'Bearer good good', 'Bearer good,', 'Bearer GOOD']],
  ] as const)('%j is the answer to %j', (answer, headers) => {
    for (const header of headers)
      expect([header, authenticate(header)]).toEqual([header, { ok: false, answer }]);
  });

  test('the scheme may have any case and any white space', () => {
    for (const header of ['Bearer good', 'bEaReR good', 'Bearer\tgood', '  Bearer   good  ']) {
      expect(authenticate(header)).toEqual({
        ok: true,
        keyId: 'abcdef012345',
        partnerId: 'demo',
        terms: { maxPerMinute: 5 },
      });
    }
  });

  test('an inactive partner is refused with its id', () => {
    expect(authenticate('Bearer dormant')).toMatchObject({
      ok: false,
      answer: errors.partnerInactive,
      partnerId: 'sleeper',
    });
  });

  const withTerms = (terms: KeyTerms, address?: string, active = true) =>
    authenticate('Bearer any', () => known('demo', active, terms), address);
  const refused = (because: string) => ({
    ok: false,
    answer: errors.keyInvalid,
    partnerId: 'demo',
    because,
  });

  test('a revoked key is answered like an unknown one, also of an inactive partner', () => {
    const revoked = { ...known('demo', false), revoked: true } as const;
    expect(authenticate('Bearer any', () => revoked)).toMatchObject(refused('revoked'));
  });

  test('a key whose prefix contradicts the mode of its Secret is as good as unknown', () => {
    const other = { ...known('demo', true), otherMode: true } as const;
    expect(authenticate('Bearer any', () => other)).toMatchObject(refused('mode'));
  });

  test('a key after its end or from a foreign address is answered like an unknown one', () => {
    expect(withTerms({ notAfter: later(now, 1) })).toMatchObject({ ok: true });
    expect(withTerms({ notAfter: now })).toMatchObject(refused('ended'));
    const cidrs = ['192.0.2.0/29', '2001:db8::/32', '198.51.100.1'];
    for (const address of ['192.0.2.7', '2001:db8:1::5', '198.51.100.1'])
      expect(withTerms({ cidrs }, address)).toMatchObject({ ok: true });
    for (const address of ['192.0.2.8', '2001:db9::5', '198.51.100.2'])
      expect(withTerms({ cidrs }, address)).toMatchObject(refused('address'));
    // An inactive partner gets its 403 only at its own addresses.
    expect(withTerms({ cidrs }, '192.0.2.8', false)).toMatchObject(refused('address'));
    expect(withTerms({ cidrs }, '192.0.2.7', false)).toMatchObject({
      answer: errors.partnerInactive,
    });
  });

  test('a very long header of blanks is judged without a hang', () => {
    const startedAt = performance.now();
    authenticate(`Bearer${' '.repeat(600_000)}\n`, lookup);
    authenticate(`Bearer ${'a '.repeat(300_000)}`, lookup);
    expect(performance.now() - startedAt).toBeLessThan(HANG_MS);
  });
});
