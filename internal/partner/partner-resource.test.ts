/** The terms of a partner's keys with and without its `Partner`. */
import { expect, test } from '@jest/globals';
import { hashApiKey, newApiKey } from './api-key.ts';
import type { StoredKey } from './key-document.ts';
import { type PartnerSecret, wantedKeys } from './key-secret.ts';
import { readTerms } from './key-terms.ts';
import { governed, type PartnerResource, readPartner } from './partner-resource.ts';

const KEY = newApiKey();
const [namespace, now] = ['read', new Date('2026-11-22T12:00:00Z')];
const CIDR = { cidrs: ['192.0.2.0/24'] };

const partner = (spec: object, name = 'acme'): PartnerResource =>
  readPartner({
    apiVersion: 'partner-ingest.io/v1alpha1',
    kind: 'Partner',
    metadata: { name, namespace, uid: `u-${name}` },
    spec,
  });
const listing = (more: object = {}): PartnerResource =>
  partner({ keys: [{ secretName: 's', ...more }] });
const secret = (annotations: Record<string, string> = {}, key = KEY): PartnerSecret => ({
  namespace,
  name: 's',
  uid: 'u',
  createdAt: now,
  partnerId: 'acme',
  status: annotations['partner-ingest.io/status'],
  ...readTerms(annotations),
  isAnnotated: Object.keys(annotations).length > 0,
  data: { key: Buffer.from(key).toString('base64') },
});

/** The stored keys after rounds with these Partners and this Secret. */
function after(rounds: readonly (readonly [PartnerResource | undefined, PartnerSecret])[]) {
  let stored: StoredKey[] = [];
  let codes: string[] = [];
  let followers: readonly string[] = [];
  for (const [resource, one] of rounds) {
    const rules = governed([one], resource === undefined ? [] : [resource], stored, { followers });
    ({ followers } = rules);
    const holder = new Map(stored.map(({ hash, source }) => [hash, source]));
    const { keys, problems } = wantedKeys(rules.secrets, { heldBy: (hash) => holder.get(hash) });
    stored = [...keys.values()].map((key) => ({ ...key, updatedAt: now }));
    codes = [...rules.problems, ...problems].map(({ code }) => code);
  }
  return { codes, keys: stored.map(({ hash, status, terms }) => [hash, status, terms]) };
}
const active = (terms: object) => [[hashApiKey(KEY), 'active', terms]];
const annotated = (name: string, value: string) => ({ [`partner-ingest.io/${name}`]: value });
const limited = { ...partner({ limits: { maxPerMinute: 5 } }), keys: listing(CIDR).keys };
const broken = partner({ suspend: 'yes' });

test.each<[string, Parameters<typeof after>[0], readonly unknown[], readonly string[]]>([
  [
    'its terms count, not annotations',
    [[listing(CIDR), secret(annotated('cidrs', '10.0.0.1'))]],
    active(CIDR),
    [],
  ],
  ['a wrong annotation is void', [[listing(), secret(annotated('mode', 'odd'))]], active({}), []],
  ['its limit counts', [[limited, secret()]], active({ ...CIDR, maxPerMinute: 5 }), []],
  [
    'suspension',
    [[partner({ suspend: true, keys: [{ secretName: 's' }] }), secret()]],
    [[hashApiKey(KEY), 'inactive', {}]],
    [],
  ],
  [
    'gone: the networks stay',
    [
      [limited, secret()],
      [undefined, secret()],
    ],
    active({ ...CIDR, maxPerMinute: 5 }),
    ['partner_gone'],
  ],
  [
    'gone: suspension stays',
    [
      [partner({ suspend: true, keys: [{ secretName: 's' }] }), secret()],
      [undefined, secret()],
    ],
    [[hashApiKey(KEY), 'inactive', {}]],
    ['partner_gone'],
  ],
  [
    'gone: no other key',
    [
      [listing(), secret()],
      [undefined, secret({}, newApiKey())],
    ],
    [],
    ['partner_gone'],
  ],
  [
    'gone before its Secret was stored: nothing opens',
    [
      [broken, secret()],
      [undefined, secret()],
    ],
    [],
    ['partner_gone'],
  ],
  [
    'gone, and its Secret renamed: nothing opens',
    [
      [partner({ suspend: true, keys: [{ secretName: 's' }] }), secret()],
      [undefined, { ...secret(), name: 'other' }],
      [undefined, { ...secret(), name: 'other' }],
    ],
    [],
    ['partner_gone'],
  ],
  [
    'its Secret becomes that of a partner without one',
    [
      [partner({ suspend: true, keys: [{ secretName: 's' }] }), secret()],
      [undefined, { ...secret(), partnerId: 'other' }],
    ],
    active({}),
    [],
  ],
  [
    'its Secret becomes that of a partner that does not list it',
    [
      [listing(CIDR), secret()],
      [partner({}, 'other'), { ...secret(), partnerId: 'other' }],
    ],
    [],
    ['secret_unlisted', 'no_keys'],
  ],
  [
    'not listed: what an annotation switched off stays off',
    [
      [undefined, secret(annotated('status', 'inactive'))],
      [partner({}), secret(annotated('status', 'inactive'))],
      [partner({}), secret(annotated('status', 'inactive'))],
    ],
    [[hashApiKey(KEY), 'inactive', {}]],
    ['secret_unlisted'],
  ],
  [
    "not listed: an annotation's limit stays, and a smaller one counts",
    [
      [undefined, secret(annotated('max-per-minute', '60'))],
      [partner({ limits: { maxPerMinute: 90, dryRunPerMinute: 7 } }), secret()],
      [partner({ limits: { maxPerMinute: 90, dryRunPerMinute: 7 } }), secret()],
    ],
    active({ maxPerMinute: 60, dryRunPerMinute: 7 }),
    ['secret_unlisted'],
  ],
  [
    'not listed: a suspension that ended',
    [
      [undefined, secret()],
      [partner({ suspend: true }), secret()],
      [partner({}), secret()],
    ],
    active({}),
    ['secret_unlisted'],
  ],
  [
    'a misspelt field opens nothing',
    [[listing({ cidr: CIDR.cidrs }), secret()]],
    [],
    ['invalid_partner'],
  ],
  [
    'given back',
    [
      [limited, secret()],
      [undefined, secret(annotated('status', 'active'))],
    ],
    active({}),
    [],
  ],
  [
    'broken: all stays',
    [
      [listing(CIDR), secret()],
      [broken, secret()],
    ],
    active(CIDR),
    ['invalid_partner'],
  ],
  ['broken: no key', [[broken, secret()]], [], ['invalid_partner']],
  [
    'not listed: networks stay',
    [
      [listing(CIDR), secret()],
      [partner({}), secret()],
    ],
    active(CIDR),
    ['secret_unlisted'],
  ],
  ['not listed: no other key', [[partner({}), secret()]], [], ['secret_unlisted']],
  [
    'not listed: suspended too',
    [
      [listing(), secret()],
      [partner({ suspend: true }), secret()],
    ],
    [[hashApiKey(KEY), 'inactive', {}]],
    ['secret_unlisted'],
  ],
  [
    "another's id",
    [[partner({ partnerId: 'other', keys: [{ secretName: 's' }] }), secret()]],
    active({}),
    ['secret_missing'],
  ],
])('%s', (_about, rounds, keys, codes) => {
  expect(after(rounds)).toEqual({ codes, keys });
});
