/** The keys, terms and problems that are read from partner Secrets. */
import { describe, expect, test } from '@jest/globals';
import { hashApiKey, keyDigest, newApiKey } from './api-key.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
import { partnersEnding, readTerms } from './key-terms.ts';
import { wantedKeys, type PartnerSecret } from './key-secret.ts';

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const now = new Date('2026-11-22T12:00:00Z');
let made = 0;

/** A Secret of one partner; `keys` are in clear text. */
function secret(
  partnerId: string,
  keys: readonly string[],
  more: Partial<PartnerSecret> = {},
): PartnerSecret {
  made += 1;
  return {
    namespace: 'partner-keys',
    name: `secret-${String(made).padStart(4, '0')}`,
    uid: `uid-${made}`,
    createdAt: undefined,
    partnerId,
    status: undefined,
    terms: {},
    faults: [],
    data: Object.fromEntries(keys.map((key, index) => [`key-${index + 1}`, base64(key)])),
    ...more,
  };
}

/** A Secret of `acme` with one key and these annotations, without their prefix. */
const annotated = (
  key: string,
  annotations: Readonly<Record<string, string>>,
  more: Partial<PartnerSecret> = {},
): PartnerSecret =>
  secret('acme', [key], {
    ...readTerms(
      Object.fromEntries(
        Object.entries(annotations).map(([name, value]) => [`partner-ingest.io/${name}`, value]),
      ),
    ),
    ...more,
  });

const codesOf = (...secrets: PartnerSecret[]): string[] =>
  wantedKeys(secrets).problems.map(({ code }) => code);
const keyOf = (key: string, ...secrets: PartnerSecret[]) =>
  wantedKeys(secrets).keys.get(hashApiKey(key));

test('each entry is one key, given in clear or as its digest', () => {
  const [one, two, end] = [newApiKey(), newApiKey(), newApiKey()];
  const digest = keyDigest(two).toUpperCase().replace('SHA256', 'sha256');
  const acme = secret('acme', [one, digest, `${end}\r\n`]);
  const { keys, problems } = wantedKeys([acme]);
  expect(problems).toEqual([]);
  const source = { namespace: acme.namespace, name: acme.name, uid: acme.uid };
  expect([...keys.values()]).toEqual(
    [one, two, end].map((key) => ({
      hash: hashApiKey(key),
      partnerId: 'acme',
      status: 'active',
      terms: {},
      source,
    })),
  );
  // An incomplete digest must not become a key.
  expect(codesOf(secret('acme', [keyDigest(one).slice(0, -1)]))).toEqual(['key_guessable']);
});

describe('a problem affects only its own entry or Secret', () => {
  const good = newApiKey();
  test.each([
    ['empty_key', { bad: '' }],
    ['empty_key', { bad: base64(keyDigest('')) }],
    ['key_not_base64', { bad: 'not*base64' }],
    ['not_a_key', { bad: base64(base64(good)) }],
  ])('%s: %j', (code, data) => {
    const { keys, problems } = wantedKeys([
      secret('acme', [], { data: { ...data, good: base64(good) } }),
    ]);
    expect([...keys.keys()]).toEqual([hashApiKey(good)]);
    expect(problems.map((problem) => problem.code)).toEqual([code]);
    expect(problems[0]?.message).toContain('"bad"');
    expect(JSON.stringify(problems)).not.toContain(good);
  });

  const annotations = Object.entries({
    mode: ['', 'Test', 'constructor'],
    'not-after': ['', 'tomorrow', '2027-01-31', '2027-02-30T12:00:00Z'],
    cidrs: ['', '192.0.2.0/33', '10.0.0.1,', Array(101).fill('10.0.0.1').join()],
  }).flatMap(([name, values]) =>
    values.map(
      (value) => ['invalid_annotation', annotated(newApiKey(), { [name]: value })] as const,
    ),
  );

  test.each([
    ['no_keys', secret('acme', [])],
    ['invalid_partner_id', secret('a/b', [newApiKey()])],
    ['invalid_partner_id', secret('a'.repeat(64), [newApiKey()])],
    ...annotations,
  ] as const)('%s costs only its Secret: %j', (code, bad) => {
    const { keys, problems } = wantedKeys([bad, secret('acme', [good])]);
    expect(problems.map((problem) => problem.code)).toEqual([code]);
    expect([...keys.keys()]).toEqual([hashApiKey(good)]);
  });
});

describe('terms', () => {
  const key = newApiKey();

  test.each(['', 'abc', '0', '1.5', '-1', '1e3', '1000001'])(
    'the bound "%s" ends no key: the last one of its partner counts, or none',
    (bad) => {
      const own = annotated(key, { 'max-per-minute': bad });
      const other = annotated(newApiKey(), { 'max-per-minute': '100' });
      const told = (...all: Parameters<typeof wantedKeys>) => {
        const { keys, problems } = wantedKeys(...all);
        return [
          keys.get(hashApiKey(key))?.terms,
          ...problems.map((one) => `${one.code} ${one.message}`),
        ];
      };
      const rule = `invalid_limit annotation partner-ingest.io/max-per-minute must be a whole number from 1 to 1000000; until then`;
      expect(told([own])).toEqual([{}, `${rule} this partner has none`]);
      for (const [maxPerMinute, counts] of [
        [60, 60],
        [200, 100],
      ] as const) {
        const lastBounds = new Map([['acme', { maxPerMinute }]]);
        const kept = [{ maxPerMinute: counts }, `${rule} ${counts} counts`];
        expect(told([own, other], { lastBounds })).toEqual(kept);
        // A Secret of tests has a bound of its own.
        expect(
          told([annotated(key, { 'max-per-minute': bad, mode: 'test' }), other], { lastBounds })[1],
        ).toBe(`${rule} this partner has none`);
      }
    },
  );

  test('a bound that can be read counts at once, beside one that cannot', () => {
    const terms = { 'max-per-minute': '120', 'max-per-minute-dry-run': '0' };
    const lastBounds = new Map([['acme', { maxPerMinute: 60, dryRunPerMinute: 30 }]]);
    const { keys } = wantedKeys([annotated(key, terms)], { lastBounds });
    expect(keys.get(hashApiKey(key))?.terms).toEqual({ maxPerMinute: 120, dryRunPerMinute: 30 });
  });

  test.each([
    ['max-per-minute-dry-run', '0', 'this partner has none'],
    ['receipts', 'yes', 'they are given on request'],
  ])('the annotation %s ends no key, whatever it says', (name, bad, until) => {
    const { keys, problems } = wantedKeys([annotated(key, { [name]: bad, 'max-per-minute': '7' })]);
    expect(keys.get(hashApiKey(key))?.terms).toEqual({ maxPerMinute: 7 });
    expect(problems).toMatchObject([{ code: 'invalid_limit' }]);
    expect(problems[0]!.message).toMatch(new RegExp(`${name} must be .*; until then ${until}$`));
  });

  test('of several Secrets of a partner the smaller bound counts, for all of its keys', () => {
    const own = annotated(key, { 'max-per-minute': '60', 'max-megabytes-per-day': '5' });
    expect(codesOf(own)).toEqual([]);
    expect(keyOf(key, own)?.terms).toEqual({ maxPerMinute: 60 });
    const others = [
      annotated(newApiKey(), { 'max-per-minute': '7' }),
      annotated(newApiKey(), { 'max-per-minute': '100' }),
      annotated(newApiKey(), { 'max-per-minute': '1' }, { partnerId: 'other' }),
    ];
    expect(keyOf(key, own, ...others)?.terms).toEqual({ maxPerMinute: 7 });
  });

  test('when and from where a key counts is said by its own Secret, and not by its partner’s others', () => {
    const own = annotated(key, {
      'not-after': '2027-01-31T12:00:00+02:00',
      cidrs: ' 192.0.2.0/24, 2001:db8::1 ,10.0.0.1',
    });
    const other = newApiKey();
    const both = [own, secret('acme', [other])];
    expect(keyOf(key, ...both)?.terms).toEqual({
      notAfter: new Date('2027-01-31T10:00:00Z'),
      cidrs: ['192.0.2.0/24', '2001:db8::1', '10.0.0.1'],
    });
    expect(keyOf(other, ...both)?.terms).toEqual({});
  });

  test('a test Secret makes test keys, and what it says concerns only those', () => {
    const testKey = newApiKey({ test: true });
    const tests = annotated(testKey, { mode: 'test', 'max-per-minute': '7' });
    const live = annotated(key, { mode: 'live', 'max-per-minute': '60' });
    expect(keyOf(testKey, tests, live)?.terms).toEqual({ test: true, maxPerMinute: 7 });
    expect(keyOf(key, tests, live)?.terms).toEqual({ maxPerMinute: 60 });
    const statusOf = (one: string, ...off: (typeof tests | undefined)[]) =>
      keyOf(
        one,
        ...[tests, live].map((each) =>
          off.includes(each) ? { ...each, status: 'inactive' } : each,
        ),
      )?.status;
    expect([statusOf(key, tests), statusOf(testKey, tests)]).toEqual(['active', 'inactive']);
    expect([statusOf(key, live), statusOf(testKey, live)]).toEqual(['inactive', 'inactive']);
    // A key of the other mode costs only its entry.
    for (const [mode, wrong, good] of [
      ['live', testKey, key],
      ['test', key, testKey],
    ] as const) {
      const { keys, problems } = wantedKeys([
        secret('acme', [wrong, good], readTerms({ 'partner-ingest.io/mode': mode })),
      ]);
      expect([...keys.keys()]).toEqual([hashApiKey(good)]);
      expect(problems.map(({ code }) => code)).toEqual(['key_of_other_mode']);
    }
  });

  test.each([
    [15 * DAY_MS, false],
    [14 * DAY_MS, true],
    [-DAY_MS, true],
    [-DAY_MS - 1, false],
    [Infinity, false],
  ])('a partner counts as ending %i ms before the end of its last key: %s', (inMs, ending) => {
    const ends = (ms: number) => (ms === Infinity ? {} : { notAfter: later(now, ms) });
    const soon = { partnerId: 'acme', status: 'active', terms: ends(-30 * DAY_MS) };
    const last = { ...soon, terms: ends(inMs) };
    const off = { ...soon, status: 'inactive', terms: {} };
    const tests = { ...soon, terms: { ...ends(DAY_MS), test: true } as const, partnerId: 'tests' };
    expect(partnersEnding([last, soon, off, tests], now)).toEqual(ending ? ['acme'] : []);
  });
});

test('an annotation allows keys of another form, and an entry that is no key says what it looks like', () => {
  const older = '7f3a9c51d20e4b8896aa01cc57be33d4';
  const entries = [older, '"quoted-key-of-another-system-7f3a"', 'https://www.acme.example.com/in'];
  const told = (value?: string) => {
    const given = value === undefined ? {} : { 'partner-ingest.io/key-format': value };
    const { keys, problems } = wantedKeys([secret('acme', entries, readTerms(given))]);
    return [[...keys.keys()], problems.map(({ code, message }) => `${code} ${message}`)];
  };
  const others = [
    'not_a_key entry "key-2" is no API key: it stands in quotes',
    'not_a_key entry "key-3" is no API key: it looks like a URL',
  ];
  const unlike = expect.stringMatching(/^not_a_key entry "key-1" .* does not begin with pik_, /);
  expect(told()).toEqual([[], [unlike, ...others]]);
  expect(told('pik')).toEqual([[], [unlike, ...others]]);
  expect(told('older')).toEqual([[hashApiKey(older)], others]);
  expect(told('any')).toEqual([[], [expect.stringMatching(/^invalid_annotation .*"older"/)]]);
});

describe('a text that begins pik_ and that "keys new" did not make', () => {
  const own = newApiKey();
  const mistyped = own.slice(0, -1) + (own.endsWith('0') ? '1' : '0');
  const older = 'pik_9f2c41d07ab84e5590bb';
  const heldBy = () => ({ namespace: 'partner-keys', name: 'any', uid: 'any' });
  const judged = (
    text: string,
    annotations: Readonly<Record<string, string>>,
    isStored: boolean,
  ) => {
    const { keys, problems } = wantedKeys(
      [annotated(text, annotations)],
      isStored ? { heldBy } : {},
    );
    expect([...keys.keys()]).toEqual(keys.size === 0 ? [] : [hashApiKey(text)]);
    return [keys.size === 1, ...problems.map(({ code, message }) => `${code} ${message}`)];
  };
  const allowed = { 'key-format': 'older' };
  const madeUp = expect.stringMatching(
    /^not_a_key entry "key-1" .* did not make it: it is mistyped/,
  );

  test.each([
    ['mistyped', mistyped, {}],
    ['of an older form', older, {}],
    ['mistyped, of tests', `pik_test_${mistyped.slice(4)}`, { mode: 'test' }],
    ['of an older form, of tests', 'pik_test_9f2c41d07ab84e55', { mode: 'test' }],
  ])('%s: is no key without the annotation, but stays where it is one already', (_, text, mode) => {
    expect(judged(text, mode, false)).toEqual([false, madeUp]);
    const stays = expect.stringMatching(/^key_of_older_form entry "key-1" .* stays active for now/);
    expect(judged(text, mode, true)).toEqual([true, stays]);
    for (const isStored of [false, true])
      expect(judged(text, { ...mode, ...allowed }, isStored)).toEqual([true]);
  });

  test.each([
    'pik_REPLACE-WITH-A-KEY-OF-40-RANDOM-CHARACTERS',
    'pik_change-me-change-me-change-me-change-me',
    `pik_${'a'.repeat(46)}`,
    `pik_test_${'0'.repeat(46)}`,
    `${own.slice(0, 30)} ${own.slice(30)}`,
  ])('%s: is never one', (text) => {
    for (const isStored of [false, true]) expect(judged(text, {}, isStored)[0]).toBe(false);
  });

  test('no placeholder passes where older keys are allowed', () => {
    const placeholder = 'pik_REPLACE-WITH-A-KEY-OF-40-RANDOM-CHARACTERS';
    const looks = 'not_a_key entry "key-1" is no API key: it looks like a placeholder';
    expect(judged(placeholder, allowed, true)).toEqual([false, looks]);
  });
});

test('the published evaluation key and its digest are refused outside an evaluation', () => {
  const published = 'pik_evaluation_only_not_for_production';
  for (const entry of [published, keyDigest(published)]) {
    expect(codesOf(secret('acme', [entry]))).toEqual(['key_published']);
    const { keys, problems } = wantedKeys([secret('acme', [entry])], { allowPublished: true });
    expect([[...keys.keys()], problems]).toEqual([[hashApiKey(published)], []]);
  }
});

describe('the same key in two Secrets', () => {
  const key = newApiKey();
  const [older, newer] = [new Date('2026-01-01T00:00:00Z'), new Date('2026-02-01T00:00:00Z')];
  /**
   * Returns the owner of the key and the Secret with the problem; any order of the list must agree.
   */
  function judged(secrets: readonly [PartnerSecret, PartnerSecret], holder?: PartnerSecret) {
    const [result, other] = [secrets, secrets.toReversed()].map((listed) => {
      const { keys, problems } = wantedKeys(listed, { heldBy: () => holder });
      const told = problems.filter(({ code }) => code.startsWith('same_key'));
      return {
        key: keys.get(hashApiKey(key)),
        problems: told.map(({ code, source }) => `${code} ${source.uid}`),
      };
    });
    expect(other).toEqual(result);
    return result!;
  }

  test.each([
    ['the older one', { createdAt: older }, { createdAt: newer }],
    ['the first by name, where there are no dates', { name: 'a' }, { name: 'b' }],
  ])('it is a key of %s, and a problem of the other Secret', (_, one, other) => {
    for (const [partner, code] of [
      ['acme', 'same_key_two_secrets'],
      ['other', 'same_key_two_partners'],
    ] as const) {
      const first = secret('acme', [key], one);
      const second = secret(partner, [key], other);
      expect(judged([first, second])).toMatchObject({
        key: { partnerId: 'acme', source: { uid: first.uid } },
        problems: [`${code} ${second.uid}`],
      });
    }
  });

  test('a Secret that breaks a rule keeps its key from others', () => {
    const holder = annotated(key, { cidrs: 'nowhere' });
    const other = secret('other', [key], { createdAt: older });
    const problems = [`same_key_two_partners ${other.uid}`];
    expect(judged([holder, other], holder)).toEqual({ key: undefined, problems });
    expect(wantedKeys([other], { heldBy: () => holder }).keys.size).toBe(1);
  });

  test('twice in one Secret it is no problem', () => {
    expect(codesOf(secret('acme', [key, `${key}\n`]))).toEqual([]);
  });
});
