/** A real API server refuses partner Secrets whose annotations the controller could not read. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { KubeConfig, KubernetesObjectApi, type KubernetesObject } from '@kubernetes/client-node';
import { partnerSecretManifest } from '../../internal/operators/cli/secret-manifest.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_LABEL, wantedKeys } from '../../internal/partner/key-secret.ts';
import { readSecret } from '../../internal/controller/secret-source.ts';
import { manifest, production, render } from '../support/chart.ts';
import { Cluster, kubeconfigOfTests } from '../support/cluster.ts';
import { eventually } from '../support/wait.ts';

const PREFIX = 'partner-ingest.io/';
const KEY = newApiKey();
const many = (count: number): string => Array(count).fill('10.0.0.1').join();

/** By annotation; the empty name is the label. */
const WRONG: Readonly<Record<string, readonly string[]>> = {
  '': [''],
  status: ['', 'Active', 'on-holiday', KEY],
  mode: ['', 'Test', 'live,test'],
  'key-format': ['', 'any'],
  'max-per-minute': ['', 'abc', '0', '-1', '1.5', '1e3', '007', '1000001', '99999999999999999999'],
  'max-per-minute-dry-run': ['', '0'],
  receipts: ['', 'Always', 'yes'],
  'not-after': ['', 'tomorrow', '2027-01-31', '2027-01-31T12:00Z', '2027-01-31T12:00:00'],
  cidrs: ['', 'everywhere', '192.0.2.0/33', '192.0.2', '10.0.0.1,', '10.0.0.1 10.0.0.2', many(101)],
};
const MORE_WRONG: typeof WRONG = { 'not-after': ['2027-02-29T12:00:00Z', '2027-01-31T24:00:00Z'] };
const RIGHT: typeof WRONG = {
  status: ['active', 'inactive'],
  mode: ['live', ' test '],
  'key-format': ['pik', 'older'],
  'max-per-minute': ['1', ' 60', '999999', '1000000'],
  'max-per-minute-dry-run': ['60'],
  receipts: ['always', 'on-request'],
  'not-after': ['2027-01-31T12:00:00Z', '2028-02-29T23:59:59.123+01:00', '2000-02-29T00:00:00Z'],
  cidrs: ['192.0.2.0/24', '192.0.2.7', '2001:db8::/32, 10.0.0.1 , ::1', many(100)],
};
const flat = (...tables: (typeof WRONG)[]): [name: string, value: string][] =>
  tables.flatMap((table) =>
    Object.entries(table).flatMap(([name, values]) =>
      values.map((value): [string, string] => [name, value]),
    ),
  );

describe('the admission policy', () => {
  const cluster = new Cluster();
  const config = new KubeConfig();
  config.loadFromFile(kubeconfigOfTests());
  const objects = KubernetesObjectApi.makeApiClient(config);
  let made: readonly KubernetesObject[] = [];
  let keys: string;

  const secretOf = (annotations: Record<string, string>, partner = 'acme') => ({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: {
      name: 'partner',
      namespace: keys,
      labels: { [PARTNER_LABEL]: partner },
      annotations,
    },
    stringData: { key: newApiKey({ test: annotations[`${PREFIX}mode`]?.trim() === 'test' }) },
  });
  const withOne = (name: string, value: string) =>
    name === '' ? secretOf({}, value) : secretOf({ [PREFIX + name]: value });
  /** What the API server says; empty if it takes the object. */
  const said = (body: KubernetesObject): Promise<string> =>
    objects.create(body, undefined, 'All').then(
      () => '',
      (error: unknown) => (JSON.parse(String((error as { body: unknown }).body)) as Error).message,
    );
  /** The object in the namespace of the keys. */
  const inKeys = (one: object): KubernetesObject => {
    const { metadata, ...rest } = one as KubernetesObject;
    return { ...rest, metadata: Object.assign({}, metadata, { namespace: keys }) };
  };
  const problems = (body: object) =>
    wantedKeys([readSecret(body)]).problems.map(({ code }) => code);

  const older = (bound: string, more: object = {}) => {
    const body = withOne('max-per-minute', bound);
    return { ...body, ...more, metadata: { ...body.metadata, name: 'older' } };
  };

  beforeAll(async () => {
    const home = await cluster.namespace('admission');
    keys = await cluster.namespace('admission-keys');
    const partnerKeys = { namespace: keys, createNamespace: false, admissionPolicy: true };
    await cluster.core.createNamespacedSecret({ namespace: keys, body: older('abc') });
    const all = await render({ ...production, partnerKeys }, { namespace: home });
    made = all.filter(({ kind }) => kind.startsWith('ValidatingAdmission'));
    for (const object of made) await objects.create(object);
    await eventually('the policy', async () => (await said(secretOf({}, ''))) !== '');
  });
  afterAll(async () => {
    for (const object of made) await objects.delete(object);
  });

  test.each(flat(WRONG, MORE_WRONG))(
    'refuses %s "%s", as the controller does',
    async (name, value) => {
      const body = withOne(name, value);
      const words = await said(body);
      expect(words).toContain(
        name === '' ? `label ${PARTNER_LABEL} must` : `annotation ${PREFIX}${name} must be `,
      );
      expect(words).not.toContain(KEY);
      expect(problems(body)).toHaveLength(1);
    },
  );

  test.each(flat(RIGHT))('takes %s "%s", as the controller does', async (name, value) => {
    const body = withOne(name, value);
    expect([await said(body), problems(body)]).toEqual(['', []]);
  });

  test('refuses a name that means nothing, and leaves those of others alone', async () => {
    expect(await said(withOne('max-per-minut', '60'))).toContain('means nothing');
    expect(await said(secretOf({ 'example.com/owner': 'x', 'partner-ingest.iox/a': 'y' }))).toBe(
      '',
    );
  });

  test('an older Secret may change, but not to another wrong annotation', async () => {
    const replace = (bound: string, key: string) =>
      cluster.core.replaceNamespacedSecret({
        namespace: keys,
        name: 'older',
        body: older(bound, { stringData: { key } }),
      });
    await replace('abc', newApiKey());
    await expect(replace('abcd', newApiKey())).rejects.toThrow('max-per-minute must be');
    await replace('60', newApiKey());
    await expect(replace('abc', newApiKey())).rejects.toThrow('max-per-minute must be');
  });

  test('takes what the pages and `keys new` print, and Secrets of nobody', async () => {
    const printed = [{}, { [`${PREFIX}mode`]: 'test' }].map((annotations) => {
      const wanted = { name: 'partner', partner: 'acme', namespace: keys, keys: [newApiKey()] };
      return partnerSecretManifest({ ...wanted, annotations }).object;
    });
    for (const one of [...manifest('deploy/examples/partner-key.yaml'), ...printed])
      expect(await said(inKeys(one))).toBe('');
    const stranger = secretOf({ [`${PREFIX}status`]: 'odd' });
    const unlabelled = { ...stranger, metadata: { ...stranger.metadata, labels: {} } };
    expect(await said(unlabelled)).toBe('');
  });
});
