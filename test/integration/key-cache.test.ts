/** The keys in ingest's memory: what is read replaces them, and what cannot be read revokes none. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { KeyCache } from '../../internal/partner/key-cache.ts';
import { KeyStore, PARTNER_KEYS, type PartnerKey } from '../../internal/partner/key-store.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { eventually, IN_FORCE_HANG_MS } from '../support/wait.ts';

const writer = { owner: 'test', term: 1 };
const log = createLogger('test', 'silent');

let stores: TestStores;
let store: KeyStore;

beforeAll(async () => {
  stores = await openTestStores();
  store = new KeyStore({ db: stores.db, clock });
});
beforeEach(async () => {
  await stores.empty();
  await store.claimTerm(writer);
});
afterAll(() => stores.close());

const wanted = (key: string) => ({
  hash: hashApiKey(key),
  partnerId: 'demo',
  status: 'active' as const,
  terms: {},
  source: { namespace: 'keys', name: 'partner-demo', uid: 'one' },
});

test('an emptied store revokes nothing: without the marker of a complete sync the keys in memory stay', async () => {
  const [key, other] = [newApiKey(), newApiKey()];
  let [refreshed, removedUses] = [0, 0];
  let unclaimed: readonly string[] = [];
  const keys = stores.db.collection<PartnerKey>(PARTNER_KEYS);
  const cache = new KeyCache({
    store,
    clock,
    log,
    onRefresh: (loaded) => {
      refreshed += 1;
      unclaimed = loaded.unclaimed.map(({ _id }) => _id);
    },
    onRemovedUse: () => (removedUses += 1),
  });
  await store.put([wanted(key)], writer);
  await cache.refresh();
  expect({ loaded: cache.loaded, found: cache.lookup(key) }).toEqual({ loaded: false, found: { known: false } });

  await store.markSynced(writer);
  await cache.refresh();
  expect(cache.loaded).toBe(true);
  expect(cache.lookup(key)).toMatchObject({ known: true, partnerId: 'demo', active: true, terms: {} });
  expect(cache.lookup(other)).toEqual({ known: false });

  await stores.empty();
  await cache.refresh();
  expect(cache.lookup(key)).toMatchObject({ known: true, active: true });
  expect(refreshed).toBe(1);

  // The controller is back, with another key.
  await store.claimTerm(writer);
  await store.put([wanted(other)], writer);
  await store.markSynced(writer);
  await cache.refresh();
  expect(cache.lookup(other)).toMatchObject({ known: true });
  expect(cache.lookup(key)).toEqual({ known: false });

  // What was removed not long ago is told when it is used, and its last use is written down.
  await store.put([wanted(key)], writer);
  await store.remove([hashApiKey(key)], writer);
  await cache.refresh();
  expect(removedUses).toBe(0);
  expect(cache.lookup(key)).toEqual({ known: false });
  expect(removedUses).toBe(1);

  // Somebody else's document is no key, and is told.
  const planted = newApiKey();
  const { insertedId } = await keys.insertOne({
    _id: hashApiKey(planted),
    partnerId: 'demo',
    status: 'active',
    source: { namespace: 'keys', name: 'partner-demo', uid: 'one', owner: 'nobody' },
    term: 1,
    updatedAt: new Date(),
  });
  await cache.refresh();
  expect(cache.lookup(planted)).toEqual({ known: false });
  expect(unclaimed).toEqual([insertedId]);
  // Whatever its shape.
  await stores.db.collection<{ _id: string }>(PARTNER_KEYS).insertOne({ _id: hashApiKey('any') });
  await cache.refresh();
  expect(unclaimed).toHaveLength(2);
  expect(cache.lookup(other)).toMatchObject({ known: true });

  await cache.close();
  const used = await stores.db.collection<PartnerKey>(PARTNER_KEYS).findOne({ _id: hashApiKey(other) });
  expect(used?.lastUsedAt).toBeInstanceOf(Date);
  expect((await store.list('demo')).find(({ status }) => status === 'removed')?.lastUsedAt).toBeInstanceOf(Date);
});

test('a revocation is in force long before all keys are read again, though nobody tells of it', async () => {
  const key = newApiKey();
  const ignore = (): void => {};
  const cache = new KeyCache({ store, clock, log, onRefresh: ignore, onRemovedUse: ignore });
  await store.put([wanted(key)], writer);
  await store.markSynced(writer);
  cache.start();
  try {
    await eventually('the first load', () => cache.lookup(key).known);
    await store.revoke(hashApiKey(key));
    await eventually('the key to be gone', () => !cache.lookup(key).known, IN_FORCE_HANG_MS);
  } finally {
    await cache.close();
  }
});
