/**
 * The keys in ingest's memory: what is read replaces them, and what cannot be read revokes none.
 */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { KeyCache } from '../../internal/partner/key-cache.ts';
import { KeyStore, PARTNER_KEYS, type KeyChange } from '../../internal/partner/key-store.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';

const log = createLogger('test', 'silent');
const ignore = (): void => {};

let stores: TestStores;
let store: KeyStore;
let term: number;

beforeAll(async () => {
  stores = await openTestStores();
  store = new KeyStore({ db: stores.db, clock });
});
beforeEach(() => newTerm());
afterAll(() => stores.close());

async function newTerm(): Promise<void> {
  await stores.empty();
  term = (await store.takeLease('test'))!;
}

/** What a round of the controller does. */
async function change(changes: readonly KeyChange[], synced = true): Promise<void> {
  await store.write(changes, term);
  await store.sync.count(term, { synced });
}
const put = (key: string): KeyChange => ({
  kind: 'put',
  key: {
    hash: hashApiKey(key),
    partnerId: 'demo',
    status: 'active',
    terms: {},
    source: { namespace: 'keys', name: 'partner-demo', uid: 'one' },
  },
  endedAt: undefined,
});

test('keys count from the first complete sync on, an emptied store ends none, and a removed one is told when used', async () => {
  const [key, other] = [newApiKey(), newApiKey()];
  let [loads, current, removedUses] = [0, 0, 0];
  const cache = new KeyCache({
    store,
    clock,
    log,
    onLoad: () => (loads += 1),
    onCurrent: () => (current += 1),
    onRemovedUse: () => (removedUses += 1),
  });
  await change([put(key)], false);
  await cache.refresh();
  expect({ loaded: cache.loaded, found: cache.lookup(key) }).toEqual({
    loaded: false,
    found: { known: false },
  });

  await change([]);
  await cache.refresh();
  expect(cache.loaded).toBe(true);
  expect(cache.lookup(key)).toMatchObject({
    known: true,
    partnerId: 'demo',
    active: true,
    terms: {},
  });
  expect(cache.lookup(other)).toEqual({ known: false });
  await cache.refresh();
  expect([loads, current]).toEqual([1, 2]);

  await newTerm();
  await cache.refresh();
  expect(cache.lookup(key)).toMatchObject({ known: true, active: true });
  expect([loads, current]).toEqual([1, 2]);

  // The controller is back, with another key, and as many changes as before.
  await change([put(other)], false);
  await change([]);
  await cache.refresh();
  expect(cache.lookup(other)).toMatchObject({ known: true });
  expect(cache.lookup(key)).toEqual({ known: false });

  await change([put(key)]);
  await change([{ kind: 'remove', hash: hashApiKey(key), endedAt: undefined }]);
  await cache.refresh();
  expect(removedUses).toBe(0);
  expect(cache.lookup(key)).toEqual({ known: false });
  expect(removedUses).toBe(1);

  // Somebody else's document is no key, and hinders nobody.
  const planted = newApiKey();
  const anything = { _id: hashApiKey(planted), partnerId: 'demo', status: 'active' };
  await stores.db.collection<{ _id: string }>(PARTNER_KEYS).insertOne(anything);
  await change([put(key)]);
  await cache.refresh();
  expect(cache.lookup(planted)).toEqual({ known: false });
  expect(cache.lookup(key)).toMatchObject({ known: true });
  await cache.close();
});

test('changes and revocations count by themselves, though nobody tells of them', async () => {
  const tools = { store, clock, log, onLoad: ignore, onCurrent: ignore, onRemovedUse: ignore };
  const cache = new KeyCache(tools);
  await change([]);
  cache.start();
  try {
    for (const end of ['revoke', 'remove'] as const) {
      const key = newApiKey();
      await change([put(key)]);
      await eventually('the key', () => cache.lookup(key).known);
      if (end === 'revoke') await store.revoke(hashApiKey(key));
      else await change([{ kind: end, hash: hashApiKey(key), endedAt: undefined }]);
      await eventually('the key to be gone', () => !cache.lookup(key).known);
    }
  } finally {
    await cache.close();
  }
});
