/** Partner keys from Secrets of a cluster to ingest. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { openKeysWorld, type KeysWorld } from '../support/keys-world.ts';
import { storedKeys } from '../support/stored-keys.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import type { InProcess } from '../support/world.ts';

describe('keys from the Kubernetes API', () => {
  let own: KeysWorld;
  let controller: InProcess;

  beforeAll(async () => {
    own = await openKeysWorld();
    controller = await own.world.start('controller', await own.settings());
  });
  afterAll(() => own.close());
  /** After each test the controller may read the namespace again. */
  afterEach(async () => {
    await own.cluster.allowSecrets(own.home, own.keys, true);
    if (await answers(controller)) return;
    controller = await own.world.start('controller', await own.settings());
  });
  const answers = (one: InProcess): Promise<boolean> =>
    fetch(`${one.adminUrl}/livez`).then(
      () => true,
      () => false,
    );

  const metric = (name: string, labels?: Record<string, string>): Promise<number> =>
    own.world.metric(controller, `partner_ingest_${name}`, labels);
  const problems = (problem: string): Promise<number> => metric('secret_problems', { problem });
  const reasonsOf = async (name: string): Promise<string[]> =>
    (await own.cluster.events(own.keys, name)).map(
      ({ reason = '', type = '' }) => `${type} ${reason}`,
    );
  const readiness = async (): Promise<{ status: number; text: string }> => {
    const response = await fetch(`${controller.adminUrl}/readyz`);
    return { status: response.status, text: await response.text() };
  };

  test('bad Secrets get one Warning Event for each kind of fault, and stop no others', async () => {
    const [good, shared, swapped] = [newApiKey(), newApiKey(), newApiKey()];
    await own.apply('a-owner', { partner: 'a-owner', keys: [shared] });
    await own.becomes(shared, 202);
    await own.apply('bad', {
      partner: 'bad',
      data: { a: '', b: 'too-short-canary', c: 'also-short', d: shared },
    });
    // The key is in the place of the name.
    await own.apply('swapped', { partner: 'swapped', data: { [swapped]: 'short-x' } });
    await own.apply('odd', { partner: 'odd', keys: [good], status: 'on-holiday' });
    // It has no label of ours.
    const [stranger, body] = [newApiKey(), { metadata: { name: 'stranger' } }];
    await own.cluster.core.createNamespacedSecret({
      namespace: own.keys,
      body: { ...body, stringData: { a: stranger } },
    });
    await own.becomes(good, 403);
    await eventually(
      'the Events',
      async () => (await reasonsOf('bad')).length === 3 && (await reasonsOf('odd')).length === 1,
    );
    expect((await reasonsOf('bad')).toSorted()).toEqual([
      'Warning EmptyKey',
      'Warning KeyTooShort',
      'Warning SameKeyTwoPartners',
    ]);
    expect(await reasonsOf('odd')).toEqual(['Warning UnknownStatus']);
    const events = await own.cluster.events(own.keys, 'bad');
    const ofSwapped = await eventually('its Event', async () => {
      const found = await own.cluster.events(own.keys, 'swapped');
      return found.length === 1 && found;
    });
    expect(events.find(({ reason }) => reason === 'KeyTooShort')?.message).toContain(
      '1 more like it',
    );
    const { uid } = (
      await own.cluster.core.readNamespacedSecret({ namespace: own.keys, name: 'bad' })
    ).metadata!;
    expect(events.every((event) => event.involvedObject.uid === uid)).toBe(true);
    for (const secret of [shared, swapped, 'too-short-canary', 'short-x']) {
      expect(JSON.stringify([...events, ...ofSwapped])).not.toContain(secret);
    }
    expect(await problems('key_too_short')).toBe(3);
    expect([await own.status(shared), await own.status(stranger)]).toEqual([202, 401]);
    expect(await reasonsOf('stranger')).toEqual([]);

    // A round for another reason does not report it again.
    const key = newApiKey();
    await own.apply('innocent', { partner: 'innocent', keys: [key] });
    await own.becomes(key, 202);
    // Nor does another leader.
    await controller.close();
    controller = await own.world.start('controller', await own.settings());
    await eventually('its round', async () => (await problems('key_too_short')) === 3);
    await controller.close();
    controller = await own.world.start('controller', await own.settings());
    expect(await reasonsOf('bad')).toHaveLength(3);
    await own.remove('bad');
    await own.remove('swapped');
    await own.remove('odd');
    await eventually('no problem any more', async () => (await problems('key_too_short')) === 0);
  });

  test('of sixty bad Secrets at once, Events beyond the rate wait', async () => {
    const names = Array.from({ length: 60 }, (_, index) => `flood-${index}`);
    await Promise.all(names.map((name) => own.apply(name, { partner: name, keys: ['short'] })));
    await eventually('all to be seen', async () => (await problems('key_too_short')) === 60);
    await eventually(
      'the rest to be held back',
      async () => (await metric('secret_events_total', { result: 'held_back' })) > 0,
    );
    const { items } = await own.cluster.core.listNamespacedEvent({ namespace: own.keys });
    expect(
      items.filter(({ involvedObject }) => involvedObject.name?.startsWith('flood-')).length,
    ).toBeLessThan(40);
    await Promise.all(names.map((name) => own.remove(name)));
  });

  test('a Secret that changes often costs few writes, and its last version counts', async () => {
    const key = newApiKey();
    await own.apply('busy', { partner: 'busy', keys: [key] });
    await own.becomes(key, 202);
    const before = await metric('key_changes_total');
    const started = performance.now();
    for (let change = 0; change <= 40; change += 1) {
      const status = change % 2 === 0 ? 'inactive' : 'active';
      await own.apply('busy', { partner: 'busy', keys: [key], status });
    }
    const seconds = (performance.now() - started) / 1_000;
    await own.becomes(key, 403);
    const writes = (await metric('key_changes_total')) - before;
    // At most five rounds a second, and one after the last change.
    expect(writes).toBeLessThanOrEqual(seconds * 5 + 2);
    expect(writes).toBeGreaterThan(0);
  });

  test('without the right to read, keys stay, also under a new controller', async () => {
    const lost = newApiKey();
    await own.apply('lost', { partner: 'lost', keys: [lost] });
    await own.becomes(lost, 202);
    await own.cluster.allowSecrets(own.home, own.keys, false);
    await eventually(
      'the problem',
      // One of Secrets, one of Partners.
      async () => (await problems('unreadable_namespace')) === 2,
      HANG_MS,
    );
    await own.remove('lost');

    await controller.close();
    const before = await own.holder();
    const blind = own.world.spawn('controller', await own.settings());
    await eventually('it to lead', async () => (await own.holder()) !== before);
    expect(await own.status(lost)).toBe(202);

    await own.cluster.allowSecrets(own.home, own.keys, true);
    await own.becomes(lost, 401);
    expect(await (await blind).stop()).toBe(0);
    controller = await own.world.start('controller', await own.settings());
    expect(await readiness()).toMatchObject({ status: 200 });
    expect(await problems('unreadable_namespace')).toBe(0);
  });

  test('all Secrets of a list with several pages are active', async () => {
    const secrets = Array.from({ length: 600 }, (_, index) => ({
      name: `bulk-${index}`,
      key: newApiKey(),
    }));
    for (let at = 0; at < secrets.length; at += 50) {
      const some = secrets.slice(at, at + 50);
      await Promise.all(
        some.map(({ name, key }) => own.apply(name, { partner: name, keys: [key] })),
      );
    }
    await controller.close();
    controller = await own.world.start('controller', await own.settings());
    await eventually('all to be active', async () => {
      const keys = await storedKeys(own.world.stores.db);
      return keys.filter(({ partnerId }) => partnerId.startsWith('bulk-')).length === 600;
    });
  });
});
