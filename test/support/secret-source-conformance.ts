/** Tests that every source of partner Secrets must pass. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import type { PartnerSecret } from '../../internal/partner/key-secret.ts';
import type {
  SecretList,
  SecretSource,
  SecretView,
} from '../../internal/controller/secret-source.ts';
import type { SecretWish } from './cluster.ts';
import { eventually } from './wait.ts';

/** A source and the place it reads, empty at first. */
export interface SourceBench {
  readonly source: SecretSource;
  readonly namespace: string;
  apply(name: string, wish: SecretWish): Promise<void>;
  remove(name: string): Promise<void>;
  /** Adds an object that is not a partner Secret. */
  addStranger(): Promise<void>;
  /** Makes reads fail, and work again. */
  harm(): Promise<void>;
  heal(): Promise<void>;
  close?(): Promise<void>;
}

export function secretSourceConformance(open: () => Promise<SourceBench>): void {
  let bench: SourceBench;
  let view: SecretView;
  let stop: AbortController;
  let changes: number;

  beforeEach(async () => {
    bench = await open();
    stop = new AbortController();
    changes = 0;
  });
  afterEach(async () => {
    stop.abort();
    await bench.close?.();
  });

  /** Resolves to the first list that says something. */
  const follow = async (): Promise<SecretList> => {
    view = bench.source.follow(() => (changes += 1), stop.signal);
    return eventually('a list', async () => {
      const list = await view.list();
      return (list.complete || list.problems.length > 0) && list;
    });
  };
  const secretNamed = async (name: string): Promise<PartnerSecret | undefined> =>
    (await view.list()).secrets.find((secret) => secret.name === name);
  const keysOf = async (name: string): Promise<string[] | undefined> => {
    const secret = await secretNamed(name);
    return (
      secret && Object.values(secret.data).map((value) => Buffer.from(value, 'base64').toString())
    );
  };

  test('the first list has every partner Secret field by field, and no other', async () => {
    const keys = [newApiKey(), newApiKey()];
    await bench.apply('acme', { partner: 'acme', keys, status: 'inactive' });
    await bench.apply('plain', { partner: 'plain', keys: [newApiKey()] });
    await bench.addStranger();
    const { secrets } = await follow();
    expect(secrets.map((secret) => secret.name).toSorted()).toEqual(['acme', 'plain']);
    expect(await secretNamed('acme')).toMatchObject({
      namespace: bench.namespace,
      name: 'acme',
      partnerId: 'acme',
      status: 'inactive',
      uid: expect.stringMatching(/.+/),
    });
    expect(await keysOf('acme')).toEqual(keys);
    expect((await secretNamed('plain'))?.status).toBeUndefined();
  });

  test('a new, a changed and a deleted Secret are reported', async () => {
    await bench.apply('other', { partner: 'other', keys: [newApiKey()] });
    await follow();
    const seen = async (what: string, look: () => Promise<boolean>): Promise<void> => {
      const before = changes;
      await eventually(what, async () => changes > before && (await look()));
    };
    const [first, second] = [newApiKey(), newApiKey()];
    let told = seen('the new one', async () => (await keysOf('acme'))?.[0] === first);
    await bench.apply('acme', { partner: 'acme', keys: [first] });
    await told;
    told = seen('the changed one', async () => (await keysOf('acme'))?.[1] === second);
    await bench.apply('acme', { partner: 'acme', keys: [first, second], status: 'inactive' });
    await told;
    expect((await secretNamed('acme'))?.status).toBe('inactive');
    told = seen('its absence', async () => (await secretNamed('acme')) === undefined);
    await bench.remove('acme');
    await told;
    const list = await view.list();
    expect(list.complete).toBe(true);
  });

  test('a source that cannot be read reports that, not an empty list', async () => {
    await bench.apply('acme', { partner: 'acme', keys: [newApiKey()] });
    await bench.harm();
    const list = await follow();
    expect(list.complete).toBe(false);
    expect(list.problems).toHaveLength(1);
    await bench.heal();
    await eventually('all to be read', async () => (await view.list()).complete);
    expect(await keysOf('acme')).toHaveLength(1);
    expect((await view.list()).problems).toEqual([]);
  });
}
