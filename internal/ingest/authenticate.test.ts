/** From an Authorization header to a partner or an answer. */
import { describe, expect, test } from '@jest/globals';
import { HANG_MS } from '../../test/support/wait.ts';
import type { KeyLookup } from '../partner/key-cache.ts';
import { authenticate } from './authenticate.ts';
import { errors } from './errors.ts';

const lookup = (key: string): KeyLookup => {
  if (key === 'good') return { known: true, partnerId: 'demo', active: true, terms: { maxPerMinute: 5 } };
  if (key === 'dormant') return { known: true, partnerId: 'sleeper', active: false, terms: {} };
  return { known: false };
};

describe('authenticate', () => {
  test.each([
    undefined,
    '',
    ' ',
    'Bearer',
    'bearer',
    'Bearer ',
    'Bearer \t ',
    'good',
    'Bearergood',
    'Bearer:good',
    'Basic good',
    'Token good',
    'X Bearer good',
  ])('%j has no key', (header) => {
    expect(authenticate(header, lookup)).toEqual({ ok: false, answer: errors.keyMissing });
  });

  test.each([
    'Bearer bad',
    'Bearer good good',
    'Bearer good,',
    'Bearer "good"',
    'Bearer GOOD',
    'Bearer Bearer good',
    'Bearer go\u00a0od',
  ])('%j has an unknown key', (header) => {
    expect(authenticate(header, lookup)).toEqual({ ok: false, answer: errors.keyInvalid });
  });

  test.each([
    'Bearer good',
    'bearer good',
    'BEARER good',
    'bEaReR good',
    'Bearer   good',
    'Bearer\tgood',
    '  Bearer good  ',
  ])('%j is the partner', (header) => {
    expect(authenticate(header, lookup)).toEqual({ ok: true, partnerId: 'demo', terms: { maxPerMinute: 5 } });
  });

  test('an inactive partner is refused by name', () => {
    expect(authenticate('Bearer dormant', lookup)).toEqual({
      ok: false,
      answer: errors.partnerInactive,
      partnerId: 'sleeper',
    });
  });

  test('the look-up sees the key and nothing else, and is not asked without one', () => {
    const asked: string[] = [];
    const remember = (key: string): KeyLookup => {
      asked.push(key);
      return { known: false };
    };
    for (const header of ['Bearer', undefined, 'Bearer \t good \t ']) authenticate(header, remember);
    expect(asked).toEqual(['good']);
  });

  test('a header of blanks is judged in one pass, so that one much longer than any allowed does not hang', () => {
    const startedAt = performance.now();
    authenticate(`Bearer${' '.repeat(600_000)}\n`, lookup);
    authenticate(`Bearer ${'a '.repeat(300_000)}`, lookup);
    expect(performance.now() - startedAt).toBeLessThan(HANG_MS);
  });
});
