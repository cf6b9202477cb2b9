import { describe, expect, test } from '@jest/globals';
import { hashApiKey, keyDigest, newApiKey } from './api-key.ts';
import { DAY_MS, later } from '../platform/clock.ts';
import { partnersEnding } from './key-terms.ts';
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
    data: Object.fromEntries(keys.map((key, index) => [`key-${index + 1}`, base64(key)])),
    ...more,
  };
}

const problemsOf = (...secrets: PartnerSecret[]): string[] =>
  wantedKeys(secrets).problems.map(({ code }) => code);
const statusOf = (key: string, ...secrets: PartnerSecret[]): string | undefined =>
  wantedKeys(secrets).keys.get(hashApiKey(key))?.status;

test('each entry is one key, so that old and new hold together during a rotation', () => {
  const [one, two] = [newApiKey(), newApiKey()];
  const acme = secret('acme', [one, two]);
  const { keys, problems } = wantedKeys([acme]);
  expect(problems).toEqual([]);
  const source = { namespace: acme.namespace, name: acme.name, uid: acme.uid };
  expect([...keys.values()]).toEqual(
    [one, two].map((key) => ({
      hash: hashApiKey(key),
      partnerId: 'acme',
      status: 'active',
      terms: {},
      source,
    })),
  );
});

test('an entry may be the digest of a key, in either case of letters: then no key stands in the Secret', () => {
  const [one, two] = [newApiKey(), newApiKey()];
  const { keys, problems } = wantedKeys([
    secret('acme', [keyDigest(one), keyDigest(two).toUpperCase().replace('SHA256', 'sha256')]),
  ]);
  expect(problems).toEqual([]);
  expect([...keys.keys()]).toEqual([hashApiKey(one), hashApiKey(two)]);
  // An incomplete digest must not become a key.
  expect(problemsOf(secret('acme', [keyDigest(one).slice(0, -1)]))).toEqual(['key_guessable']);
});

describe('problems cost only what they are about', () => {
  const good = newApiKey();
  test.each([
    ['empty_key', { bad: '' }],
    ['empty_key', { bad: base64(keyDigest('')) }],
    ['key_too_short', { bad: base64('short') }],
    ['key_not_printable', { bad: base64(`${good} `) }],
    [
      'key_not_printable',
      { bad: Buffer.from([0xff, 0xfe, ...Buffer.from(good)]).toString('base64') },
    ],
    ['key_not_base64', { bad: 'not*base64' }],
  ])('%s: %j', (code, data) => {
    const { keys, problems } = wantedKeys([
      secret('acme', [], { data: { ...data, good: base64(good) } }),
    ]);
    expect([...keys.keys()]).toEqual([hashApiKey(good)]);
    expect(problems.map((problem) => problem.code)).toEqual([code]);
    expect(problems[0]?.message).toContain('"bad"');
    expect(JSON.stringify(problems)).not.toContain(good);
  });

  test.each([
    ['too short', base64('short')],
    ['not base64', 'not*base64'],
    ["another partner's", base64(good)],
  ])('an entry whose name is the key is not named where its value is %s', (_name, value) => {
    // The shortest valid key, a generated key, and the longest name that Kubernetes allows.
    for (const key of ['k'.repeat(20), newApiKey(), 'k'.repeat(253)]) {
      const { problems } = wantedKeys([
        secret('owner', [good]),
        secret('thief', [], { data: { [key]: value } }),
      ]);
      expect(problems).toHaveLength(1);
      expect(problems[0]?.message).toContain('an entry with a long name');
      expect(JSON.stringify(problems)).not.toContain(key);
    }
  });

  test('no_keys', () => {
    expect(problemsOf(secret('acme', []), secret('other', [good]))).toEqual(['no_keys']);
  });

  test.each(['', 'a-', 'a'.repeat(64), 'a/b'])('invalid_partner_id: %j', (partnerId) => {
    const { keys, problems } = wantedKeys([
      secret(partnerId, [newApiKey()]),
      secret('other', [good]),
    ]);
    expect(problems.map(({ code }) => code)).toEqual(['invalid_partner_id']);
    expect([...keys.keys()]).toEqual([hashApiKey(good)]);
  });
});

describe('status', () => {
  const key = newApiKey();
  test.each([
    [undefined, 'active'],
    ['active', 'active'],
    ['inactive', 'inactive'],
    ['Active', 'inactive'],
  ])('%j counts as %s', (status, counts) => {
    expect(statusOf(key, secret('acme', [key], { status }))).toBe(counts);
  });

  test('inactive on any Secret switches off all keys of that partner, and of no other', () => {
    const other = newApiKey();
    const secrets = [
      secret('acme', [key], { status: 'active' }),
      secret('acme', [newApiKey()], { status: 'inactive' }),
      secret('other', [other]),
    ];
    expect(statusOf(key, ...secrets)).toBe('inactive');
    expect(statusOf(key, ...secrets.toReversed())).toBe('inactive');
    expect(statusOf(other, ...secrets)).toBe('active');
  });

  test('an unknown one switches off the keys of its own Secret, and no other', () => {
    const mistyped = newApiKey();
    const secrets = [secret('acme', [key]), secret('acme', [mistyped], { status: 'Active' })];
    expect(statusOf(key, ...secrets)).toBe('active');
    expect(statusOf(mistyped, ...secrets)).toBe('inactive');
  });
});

describe('bounds', () => {
  const key = newApiKey();
  const perMinute = (value: string) => ({ 'partner-ingest.io/max-per-minute': value });
  const perDay = (value: string) => ({ 'partner-ingest.io/max-megabytes-per-day': value });
  const termsOf = (...secrets: PartnerSecret[]) =>
    wantedKeys(secrets).keys.get(hashApiKey(key))?.terms;

  test('there are none by default; of several Secrets of a partner the smaller counts, for all of its keys', () => {
    expect(termsOf(secret('acme', [key]))).toEqual({});
    const annotations = { ...perMinute('60'), ...perDay('1000000') };
    expect(termsOf(secret('acme', [key], { annotations }))).toEqual({
      maxPerMinute: 60,
      maxMegabytesPerDay: 1e6,
    });
    const others = [
      secret('acme', [], { annotations: perMinute('7') }),
      secret('acme', [newApiKey()], { annotations: { ...perMinute('100'), ...perDay('5') } }),
      secret('other', [newApiKey()], { annotations: perMinute('1') }),
    ];
    expect(termsOf(secret('acme', [key], { annotations }), ...others)).toEqual({
      maxPerMinute: 7,
      maxMegabytesPerDay: 5,
    });
  });

  test.each(['', '0', '1.5', '1000001'])('%j costs only its Secret, and names the rule', (bad) => {
    const good = newApiKey();
    const { keys, problems } = wantedKeys([
      secret('acme', [key], { annotations: perDay(bad) }),
      secret('acme', [good]),
    ]);
    expect([...keys.keys()]).toEqual([hashApiKey(good)]);
    expect(problems).toMatchObject([
      {
        code: 'invalid_annotation',
        message:
          'annotation partner-ingest.io/max-megabytes-per-day must be a whole number from 1 to 1000000; the keys of this Secret are not used',
      },
    ]);
  });
});

describe('when and from where a key counts', () => {
  const [key, other] = [newApiKey(), newApiKey()];
  const notAfter = (value: string) => ({ 'partner-ingest.io/not-after': value });
  const cidrs = (value: string) => ({ 'partner-ingest.io/cidrs': value });

  test('is said by the key’s own Secret, and not by its partner’s others', () => {
    const annotations = {
      ...notAfter('2027-01-31T12:00:00+02:00'),
      ...cidrs(' 192.0.2.0/24, 2001:db8::1 ,10.0.0.1'),
    };
    const { keys, problems } = wantedKeys([
      secret('acme', [key], { annotations }),
      secret('acme', [other]),
    ]);
    expect(problems).toEqual([]);
    expect(keys.get(hashApiKey(key))?.terms).toEqual({
      notAfter: new Date('2027-01-31T10:00:00Z'),
      cidrs: ['192.0.2.0/24', '2001:db8::1', '10.0.0.1'],
    });
    expect(keys.get(hashApiKey(other))?.terms).toEqual({});
  });

  test.each([
    ...['', 'tomorrow', '2027-01-31', '2027-02-30T12:00:00Z'].map(notAfter),
    ...['', '192.0.2.0/33', '10.0.0.1,', 'example.org'].map(cidrs),
    cidrs(Array.from({ length: 101 }, () => '10.0.0.1').join()),
  ])('%j costs only its Secret', (annotations) => {
    const { keys, problems } = wantedKeys([
      secret('acme', [key], { annotations }),
      secret('acme', [other]),
    ]);
    expect([...keys.keys()]).toEqual([hashApiKey(other)]);
    expect(problems.map(({ code }) => code)).toEqual(['invalid_annotation']);
  });

  test.each([
    ['long before its end', { notAfter: later(now, 8 * DAY_MS) }, false],
    ['a week before its end', { notAfter: later(now, 7 * DAY_MS) }, true],
    ['just after its end', { notAfter: later(now, -DAY_MS) }, true],
    ['long after its end', { notAfter: later(now, -DAY_MS - 1) }, false],
    ['without an end', {}, false],
  ])('a partner is counted as ending by its last key, %s: %j %s', (_when, terms, ending) => {
    const soon = {
      partnerId: 'acme',
      status: 'active',
      terms: { notAfter: later(now, -30 * DAY_MS) },
    };
    const last = { ...soon, terms };
    const off = { ...soon, status: 'inactive', terms: {} };
    expect(partnersEnding([last, soon, off], now)).toEqual(ending ? ['acme'] : []);
  });
});

test('the published key of the evaluation is no key elsewhere, nor is its digest', () => {
  const published = 'pik_evaluation_only_not_for_production';
  for (const entry of [published, keyDigest(published)]) {
    expect(problemsOf(secret('acme', [entry]))).toEqual(['key_published']);
    const { keys, problems } = wantedKeys([secret('acme', [entry])], { allowPublished: true });
    expect([[...keys.keys()], problems]).toEqual([[hashApiKey(published)], []]);
  }
});

describe('the same key twice', () => {
  const key = newApiKey();
  const [older, newer] = [new Date('2026-01-01T00:00:00Z'), new Date('2026-02-01T00:00:00Z')];
  const owner = (...secrets: PartnerSecret[]): string | undefined =>
    wantedKeys(secrets).keys.get(hashApiKey(key))?.partnerId;

  test('under two partners it stays with the older Secret, in whatever order they are listed', () => {
    const first = secret('first', [key], { createdAt: older });
    const second = secret('second', [key], { createdAt: newer });
    expect(owner(first, second)).toBe('first');
    expect(owner(second, first)).toBe('first');
    const { problems } = wantedKeys([second, first]);
    expect(problems.map(({ code, source }) => `${code} ${source.uid}`)).toEqual([
      `same_key_two_partners ${second.uid}`,
    ]);
  });

  test('of one partner it is a problem of the newer Secret, and has the stricter terms; in one Secret it is none', () => {
    const [end, cidrs] = ['partner-ingest.io/not-after', 'partner-ingest.io/cidrs'];
    const [soon, late] = ['2027-01-01T00:00:00Z', '2028-01-01T00:00:00Z'];
    const both = (one: Record<string, string>, other: Record<string, string>) =>
      wantedKeys([
        secret('acme', [key], { annotations: other, createdAt: newer }),
        secret('acme', [key, `${key}\n`], { annotations: one, createdAt: older, name: 'older' }),
      ]);
    const { keys, problems } = both({ [end]: late }, { [end]: soon });
    expect(keys.get(hashApiKey(key))).toMatchObject({
      terms: { notAfter: new Date(soon) },
      source: { name: 'older' },
    });
    expect(problems).toMatchObject([
      { code: 'same_key_two_secrets', message: expect.stringContaining('older') },
    ]);
    const networks = (one: Record<string, string>, other: string) =>
      both(one, { [cidrs]: other }).keys.get(hashApiKey(key))?.terms.cidrs;
    expect(networks({ [cidrs]: '192.0.2.0/24' }, '192.0.2.128/25, ::1')).toEqual([
      '192.0.2.128/25',
    ]);
    expect(networks({ [cidrs]: '192.0.2.0/25' }, '192.0.2.128/25')).toEqual([]);
    expect(networks({}, '192.0.2.1')).toEqual(['192.0.2.1']);
    expect(problemsOf(secret('acme', [key, `${key}\n`]))).toEqual([]);
  });
});
