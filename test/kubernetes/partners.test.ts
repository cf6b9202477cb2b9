/** `Partner` resources on a real API server: what it refuses, and what the controller does with them. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { PatchStrategy, type KubernetesObject } from '@kubernetes/client-node';
import { hashApiKey, keyIdOf, newApiKey } from '../../internal/partner/api-key.ts';
import { parseAllDocuments } from 'yaml';
import { PartnersDisabled } from '../../internal/partner/flags.ts';
import { SecretProblems } from '../../internal/partner/kept-findings.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { PARTNER_API } from '../../internal/partner/key-terms.ts';
import { readPartner } from '../../internal/partner/partner-resource.ts';
import { DAY_MS, later, systemClock as clock } from '../../internal/platform/process/clock.ts';
import { kubernetesStatus } from '../../internal/platform/process/kubernetes.ts';
import { LIVES_MS } from '../../internal/traffic/living-pods.ts';
import { trafficCollection } from '../../internal/traffic/traffic.ts';
import { runCli } from '../support/cli.ts';
import { openKeysWorld, type KeysWorld } from '../support/keys-world.ts';
import { storedKey, storedKeys } from '../support/stored-keys.ts';
import { eventually } from '../support/wait.ts';
import type { InProcess } from '../support/world.ts';

interface Status {
  readonly observedGeneration: number;
  readonly activeKeys: number;
  readonly lastUsed?: string;
  readonly conditions: readonly Record<'type' | 'status' | 'reason' | 'message', string>[];
  readonly keys: readonly Record<'id' | 'state', string>[];
}
type PartnerObject = KubernetesObject & {
  readonly spec: object;
  readonly status?: Status;
  readonly metadata: { readonly generation?: number };
};

const [listed, many] = [(more: object) => ({ keys: [{ secretName: 's', ...more }] }), 101];
/** Twenty wrong specs, with what is said of each. */
const WRONG: readonly [spec: object, words: string][] = [
  [{ suspend: 'yes' }, 'spec.suspend in body must be of type boolean'],
  [{ partnerId: 'a b' }, 'must be 1 to 63 letters, digits'],
  [{ partnerId: '-acme' }, 'begin and end with a letter or digit'],
  [{ partnerId: '' }, 'must be 1 to 63 letters, digits'],
  [{ partnerId: 'a'.repeat(64) }, 'Too long'],
  [{ limits: { maxPerMinute: 'abc' } }, 'maxPerMinute in body must be of type integer'],
  [{ limits: { maxPerMinute: 0 } }, 'should be greater than or equal to 1'],
  [{ limits: { maxPerMinute: 1.5 } }, 'must be of type integer'],
  [{ limits: { testMaxPerMinute: 1_000_001 } }, 'should be less than or equal to 1000000'],
  [{ keys: 'all' }, 'spec.keys in body must be of type array'],
  [listed({ mode: 'tests' }), 'supported values: "live", "test"'],
  [listed({ format: 'any' }), 'supported values: "pik", "older"'],
  [listed({ notAfter: 'tomorrow' }), 'must be a time of RFC 3339'],
  [listed({ notAfter: '2027-02-29T12:00:00Z' }), 'must be a time of RFC 3339'],
  [listed({ cidrs: [] }), 'should have at least 1 items'],
  [listed({ cidrs: ['192.0.2.0/33'] }), 'must be an address or a network'],
  [listed({ cidrs: Array(many).fill('10.0.0.1') }), 'must have at most 100 items'],
  [{ keys: [{ mode: 'live' }] }, 'spec.keys[0].secretName: Required value'],
  [{ keys: [{ secretName: 'A b' }] }, 'must be the name of a Secret'],
  [{ keys: [{ secretName: 's' }, { secretName: 's' }] }, 'Duplicate value'],
];

const prefixed = (annotations: Record<string, string>) =>
  Object.fromEntries(
    Object.entries(annotations).map(([name, value]) => [`partner-ingest.io/${name}`, value]),
  );

/** A policy under which nobody writes the status of this Partner, and its binding. */
const refusing = (name: string, namespace: string) => {
  const made = { apiVersion: 'admissionregistration.k8s.io/v1', metadata: { name: namespace } };
  const resources = ['partners/status'];
  const rule = { apiGroups: ['partner-ingest.io'], apiVersions: ['*'], operations: ['UPDATE'] };
  const spec = {
    matchConstraints: { resourceRules: [{ ...rule, resources }] },
    validations: [{ expression: `object.metadata.name != '${name}'` }],
  };
  const bound = { policyName: namespace, validationActions: ['Deny'] };
  const [policy, binding] = ['ValidatingAdmissionPolicy', 'ValidatingAdmissionPolicyBinding'];
  return [
    { ...made, kind: policy, spec },
    { ...made, kind: binding, spec: bound },
  ] as const;
};

describe('Partners', () => {
  let own: KeysWorld;
  let controller: InProcess;
  let definition: KubernetesObject | undefined;

  const partner = (name: string, spec: object): PartnerObject => ({
    apiVersion: 'partner-ingest.io/v1alpha1',
    kind: 'Partner',
    metadata: { name, namespace: own.keys },
    spec,
  });
  const objects = () => own.cluster.objects;
  const apply = (name: string, spec: object) =>
    objects().patch(
      partner(name, spec),
      undefined,
      undefined,
      'gitops',
      true,
      PatchStrategy.ServerSideApply,
    );
  const read = (name: string) =>
    objects().read(partner(name, {}) as never) as Promise<unknown> as Promise<PartnerObject>;
  const reasonOf = async (name: string, type = 'Ready'): Promise<string> => {
    const { status, metadata } = await read(name);
    if (status?.observedGeneration !== metadata.generation) return 'not judged';
    const found = status?.conditions.find((one) => one.type === type);
    return `${found?.status} ${found?.reason}`;
  };
  const becomes = (name: string, wanted: string, type?: string) =>
    eventually(`${name} ${wanted}`, async () => (await reasonOf(name, type)) === wanted);
  const lines = (name: string, secret = name) => ({ keys: [{ secretName: secret }] });
  const annotate = (name: string, annotations: Record<string, string>) => {
    const metadata = { name, namespace: own.keys, annotations: prefixed(annotations) };
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata };
    return merge(secret);
  };
  const merge = (body: KubernetesObject) =>
    objects().patch(body, undefined, undefined, undefined, undefined, PatchStrategy.MergePatch);
  const codes = async (): Promise<string[]> =>
    (await new SecretProblems({ db: own.world.stores.db, clock }).list()).map(({ code }) => code);

  const define = () =>
    eventually('the definition', async () => {
      definition = await own.cluster.definePartners();
      return definition;
    });

  beforeAll(async () => {
    own = await openKeysWorld();
    controller = await own.world.start('controller', await own.settings());
  });
  afterAll(async () => {
    if (definition !== undefined) await objects().delete(definition);
    await own.close();
  });

  test('an API server that does not know the kind ends and keeps no key', async () => {
    const key = newApiKey();
    await own.apply('early', { partner: 'early', keys: [key] });
    await own.becomes(key, 202);
    await define();
    await eventually('the kind', () => apply('early', lines('early')));
    await becomes('early', 'True KeysKnown');
    expect(await own.status(key)).toBe(202);
  });

  test.each(WRONG)('refuses %j', async (spec, words) => {
    const body = partner('wrong', spec);
    const said = await objects()
      .create(body, undefined, 'All')
      .then(
        () => '',
        (error: unknown) => String((error as { body: unknown }).body),
      );
    expect(JSON.parse(said).message).toContain(words);
    // The controller would not use it either; a folder holds it to no schema.
    expect(readPartner(body).fault).toBeDefined();
  });

  test('a partner id never changes, and a second apply writes nothing', async () => {
    await own.apply('twice', { partner: 'twice', keys: [newApiKey()] });
    const spec = { ...lines('twice'), limits: { maxPerMinute: 60 } };
    await apply('twice', spec);
    await becomes('twice', 'True KeysKnown');
    const first = await read('twice');
    await apply('twice', spec);
    expect(await read('twice')).toEqual(first);
    expect(first.spec).toEqual(spec);
    await expect(apply('twice', { ...spec, partnerId: 'other' })).rejects.toThrow(
      'cannot be changed',
    );
  });

  test('a Partner counts in the place of annotations, and its loss opens nothing', async () => {
    const [key, added] = [newApiKey(), newApiKey()];
    await own.apply('acme-a', { partner: 'acme', keys: [key] });
    await annotate('acme-a', { cidrs: '192.0.2.0/24', 'max-per-minute': '1' });
    await own.becomes(key, 401);
    await apply('acme', lines('acme', 'acme-a'));
    await becomes('acme', 'True KeysKnown');
    expect(await own.status(key)).toBe(202);
    expect(await reasonOf('acme', 'AnnotationsVoid')).toBe('True PartnerCounts');

    await apply('acme', { ...lines('acme', 'acme-a'), suspend: true });
    await becomes('acme', 'False Suspended');
    await own.becomes(key, 403);
    await apply('acme', lines('acme', 'acme-a'));
    await becomes('acme', 'True KeysKnown');
    expect(await own.status(key)).toBe(202);
    const disabled = new PartnersDisabled({ db: own.world.stores.db, clock });
    await disabled.change('acme', true, 'jane');
    await becomes('acme', 'False Disabled');
    expect((await read('acme')).status?.conditions[2]?.message).toContain('by jane');
    await disabled.change('acme', false, 'jane');
    await becomes('acme', 'True KeysKnown');

    // A Secret that is not listed gives no key, and takes none.
    await own.apply('acme-b', { partner: 'acme', keys: [added] });
    await eventually('the advice', async () => (await codes()).includes('secret_unlisted'));
    expect([await own.status(added), await own.status(key)]).toEqual([401, 202]);
    expect(await reasonOf('acme')).toBe('True KeysKnown');
    await apply('acme', { keys: [{ secretName: 'acme-b' }] });
    await own.becomes(added, 202);
    expect(await own.status(key)).toBe(202);

    await apply('acme', { keys: [{ secretName: 'acme-b', cidrs: ['192.0.2.0/24'] }] });
    await own.becomes(added, 401);
    await annotate('acme-b', { status: 'active' });
    await objects().delete(partner('acme', {}));
    await eventually('the loss', async () => (await codes()).includes('partner_gone'));
    expect([await own.status(added), await own.status(key)]).toEqual([401, 202]);
    await apply('acme', { ...lines('acme', 'acme-b'), limits: { maxPerMinute: 7 } });
    await becomes('acme', 'True KeysKnown');
    expect([await own.status(added), await own.status(key)]).toEqual([202, 202]);
    expect((await storedKey(own.world.stores.db, key))?.terms).toEqual({ maxPerMinute: 7 });
    await own.remove('acme-a');
    await own.becomes(key, 401);
    await own.remove('acme-b');
    await becomes('acme', 'False SecretMissing');
    await own.apply('acme-b', { partner: 'acme', keys: [added] });
    await becomes('acme', 'True KeysKnown');
  });

  test("a Partner that names another's Secret, or another's id, changes nothing there", async () => {
    const key = newApiKey();
    await own.apply('victim', { partner: 'victim', keys: [key] });
    await apply('victim', lines('victim'));
    await becomes('victim', 'True KeysKnown');
    await apply('thief', lines('thief', 'victim'));
    await becomes('thief', 'False SecretMissing');
    await apply('twin', { ...lines('victim'), partnerId: 'victim', suspend: true });
    await becomes('twin', 'False SamePartnerTwice');
    expect([await reasonOf('victim'), await own.status(key)]).toEqual(['True KeysKnown', 202]);
    const events = await eventually('the Event', async () => {
      const found = await own.cluster.events(own.keys, 'thief');
      return found.length > 0 && found;
    });
    expect(events[0]).toMatchObject({
      reason: 'SecretMissing',
      involvedObject: { kind: 'Partner' },
    });
    await own.apply('victim', { partner: 'victim', data: { a: 'no-key' } });
    await becomes('victim', 'False KeyTooShort');
    await objects().delete(partner('thief', {}));
    await objects().delete(partner('twin', {}));
  });

  test('Ready waits for an ingest pod that does not know the key yet', async () => {
    await own.apply('late', { partner: 'late', keys: [newApiKey()] });
    const beat = { expiresAt: later(clock.now(), DAY_MS), keysVersion: 1, writes: {} };
    const beats = trafficCollection(own.world.stores.db);
    await beats.insertOne({ _id: 'pod deaf', ...beat });
    await apply('late', lines('late'));
    await becomes('late', 'False NotYetKnown');
    await beats.deleteOne({ _id: 'pod deaf' });
    await becomes('late', 'True KeysKnown');
    // One that ends is not waited for.
    const other = await own.world.start('ingest');
    await other.close();
    await apply('late', { keys: [{ secretName: 'late', notAfter: later(clock.now(), DAY_MS) }] });
    const askedAt = clock.monotonicMs();
    await becomes('late', 'True KeysKnown');
    expect(clock.monotonicMs() - askedAt).toBeLessThan(LIVES_MS / 2);
    expect(await reasonOf('late', 'KeysExpiring')).toBe('True LastKeyEnds');
  });

  test('a status is written once a change, also under another controller', async () => {
    const [key, other] = [newApiKey(), newApiKey()];
    await own.apply('quiet', { partner: 'quiet', keys: [key] });
    await apply('quiet', lines('quiet'));
    await becomes('quiet', 'True KeysKnown');
    const before = (await read('quiet')).metadata.resourceVersion;
    const standby = await own.world.start('controller', await own.settings());
    await controller.close();
    controller = standby;
    await own.apply('loud', { partner: 'loud', keys: [other] });
    await apply('loud', lines('loud'));
    await becomes('loud', 'True KeysKnown');
    expect((await read('quiet')).metadata.resourceVersion).toBe(before);
    const { status } = await read('quiet');
    expect(status?.keys).toEqual([
      { id: keyIdOf(hashApiKey(key)), secretName: 'quiet', mode: 'live', state: 'active' },
    ]);
  });

  test('a misspelt field is refused where it would leave a key open', async () => {
    await expect(apply('wrong', listed({ cidr: ['192.0.2.0/24'] }))).rejects.toThrow(
      'field not declared in schema',
    );
  });

  test('a revoked key shows, although no Secret changes', async () => {
    const [leaked, other] = [newApiKey(), newApiKey()];
    await own.apply('leaky', { partner: 'leaky', keys: [leaked, other] });
    await apply('leaky', lines('leaky'));
    await becomes('leaky', 'True KeysKnown');
    await new KeyStore({ db: own.world.stores.db, clock }).revoke(hashApiKey(leaked));
    const status = await eventually('the revocation', async () => {
      const now = (await read('leaky')).status;
      return now?.activeKeys === 1 && now;
    });
    const states = new Map(status.keys.map(({ id, state }) => [id, state]));
    expect([leaked, other].map((key) => states.get(keyIdOf(hashApiKey(key))))).toEqual([
      'revoked',
      'active',
    ]);
    await own.becomes(leaked, 401);
    expect(await own.status(other)).toBe(202);
  });

  test('one status that a policy refuses holds back no other', async () => {
    const [policy, binding] = refusing('aaa-refused', own.keys);
    await objects().create(policy);
    await objects().create(binding);
    const names = ['aaa-refused', 'zzz-taken'];
    for (const name of names) await own.apply(name, { partner: name, keys: [newApiKey()] });
    const refused = () =>
      own.cluster.custom
        .patchNamespacedCustomObjectStatus({
          ...PARTNER_API,
          namespace: own.keys,
          plural: 'partners',
          name: 'aaa-refused',
          body: [{ op: 'add', path: '/status', value: {} }],
          dryRun: 'All',
        })
        .then(
          () => false,
          (error: unknown) => kubernetesStatus(error) === 422,
        );
    try {
      await apply('aaa-refused', { suspend: true });
      await eventually('the policy', refused);
      await apply('aaa-refused', lines('aaa-refused'));
      await apply('zzz-taken', lines('zzz-taken'));
      await becomes('zzz-taken', 'True KeysKnown');
      expect(await reasonOf('aaa-refused')).toBe('not judged');
    } finally {
      await objects().delete(binding);
      await objects().delete(policy);
    }
    await becomes('aaa-refused', 'True KeysKnown');
  });

  test('losing the definition ends and opens no key', async () => {
    const [live, off] = [newApiKey(), newApiKey()];
    await own.apply('live', { partner: 'live', keys: [live] });
    await own.apply('off', { partner: 'off', keys: [off], status: 'active' });
    await apply('live', lines('live'));
    await apply('off', { ...lines('off'), suspend: true });
    await becomes('off', 'False Suspended');
    await becomes('live', 'True KeysKnown');
    await objects().delete(definition!);
    await eventually('the loss', async () => (await codes()).includes('partner_gone'));
    expect([await own.status(live), await own.status(off)]).toEqual([202, 403]);
    await define();
    await eventually('the kind', () => apply('off', lines('off')));
    await becomes('off', 'True KeysKnown');
    expect([await own.status(live), await own.status(off)]).toEqual([202, 202]);
  });

  test('annotated Secrets become Partners and back, and no key is lost', async () => {
    const all = Array.from({ length: 20 }, (_, at) => ({ name: `moved-${at}`, key: newApiKey() }));
    for (const { name, key } of all) {
      await own.apply(name, { partner: name, keys: [key] });
      await annotate(name, { status: 'active', 'max-per-minute': '600' });
    }
    const termsOf = async () =>
      (await storedKeys(own.world.stores.db))
        .filter(({ partnerId }) => partnerId.startsWith('moved-'))
        .map(({ hash, status, terms }) => ({ hash, status, terms }))
        .toSorted((one, other) => one.hash.localeCompare(other.hash));
    await eventually('all keys', async () => {
      const bounds = (await termsOf()).filter(({ terms }) => terms.maxPerMinute === 600);
      return bounds.length === 20;
    });
    const before = await termsOf();
    const { items } = await own.cluster.core.listNamespacedSecret({ namespace: own.keys });
    const file = join(own.world.keyFolder, 'secrets.json');
    await writeFile(
      file,
      JSON.stringify({
        kind: 'List',
        items: items.map(({ metadata }) => ({ kind: 'Secret', metadata })),
      }),
    );
    const { stdout, code } = await runCli({}, 'partner', 'manifests', file);
    expect(code).toBe(0);
    const made = parseAllDocuments(stdout).map((one) => one.toJS() as PartnerObject);
    const theirs = made.filter(({ metadata }) => metadata.name?.startsWith('moved-'));
    expect(theirs).toHaveLength(20);
    const lost: number[] = [];
    for (const { key } of all)
      await eventually('ingest to know the key', async () => (await own.status(key)) === 202);
    const watching = new AbortController();
    const load = (async () => {
      for (let at = 0; !watching.signal.aborted; at += 1) {
        const status = await own.status(all[at % all.length]!.key);
        if (status !== 202) lost.push(status);
      }
    })();
    for (const one of theirs) await apply(one.metadata.name!, one.spec);
    for (const { name } of all) await becomes(name, 'True KeysKnown');
    expect(await termsOf()).toEqual(before);
    for (const one of theirs) await objects().delete(one);
    await eventually('the loss', async () => (await codes()).includes('partner_gone'));
    await controller.close();
    controller = await own.world.start('controller', {
      ...(await own.settings()),
      WATCH_PARTNERS: 'false',
    });
    await eventually('no Partner', async () => {
      const keys = await storedKeys(own.world.stores.db);
      return keys.every(({ partnerId, followed }) => !followed || !partnerId.startsWith('moved-'));
    });
    watching.abort();
    await load;
    expect([lost, await termsOf()]).toEqual([[], before]);
  });
});
