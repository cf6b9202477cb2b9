/** Keys in the memory of ingest: only a read that succeeds replaces them. */
import { beforeEach, expect, test } from '@jest/globals';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { KeyCache } from '../../internal/partner/key-cache.ts';
import { PARTNER_KEYS, type StoredKey } from '../../internal/partner/key-document.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { storesOfFile } from '../support/test-stores.ts';

const log = createLogger('test', 'silent');

const stores = await storesOfFile();
const store = new KeyStore({ db: stores.db, clock });
let cache: KeyCache;
let [loads, current] = [0, 0];

beforeEach(async () => {
  await stores.empty();
  [loads, current] = [0, 0];
  cache = new KeyCache({
    store,
    clock,
    log,
    onLoad: () => (loads += 1),
    onCurrent: () => (current += 1),
  });
  await store.documents.take('test');
});

/** Writes as a round of the controller does. */
async function write(keys: readonly string[], synced = true): Promise<void> {
  const { version } = (await store.documents.read())!;
  await store.documents.replace(version, keys.map(stored), { synced, ended: [] });
}
const stored = (key: string): StoredKey => ({
  hash: hashApiKey(key),
  partnerId: 'demo',
  status: 'active',
  terms: {},
  source: { namespace: 'keys', name: 'partner-demo', uid: 'one' },
  updatedAt: new Date(),
});
const found = { known: true, partnerId: 'demo', active: true, revoked: false };

test('keys are active from the first complete sync on, and an emptied store ends none', async () => {
  const [key, other] = [newApiKey(), newApiKey()];
  await write([key], false);
  await cache.refresh();
  expect([cache.loaded, cache.lookup(key)]).toEqual([false, { known: false }]);

  await write([key]);
  await cache.refresh();
  await cache.refresh();
  expect(cache.loaded).toBe(true);
  expect(cache.lookup(key)).toMatchObject({ ...found, terms: {} });
  expect(cache.lookup(other)).toEqual({ known: false });
  expect([loads, current]).toEqual([1, 2]);

  await store.revoke(hashApiKey(key));
  await cache.refresh();
  await stores.empty();
  await cache.refresh();
  expect(cache.lookup(key)).toMatchObject({ known: true, revoked: true });
  expect(current).toBe(3);

  await store.documents.take('test');
  await write([other]);
  await cache.refresh();
  expect([cache.lookup(key).known, cache.lookup(other).known]).toEqual([false, true]);
});

test('keys of a restored older document are active, except those revoked since', async () => {
  const [kept, revoked, later] = [newApiKey(), newApiKey(), newApiKey()];
  await write([kept, revoked]);
  const documents = stores.db.collection(PARTNER_KEYS);
  const backup = (await documents.findOne())!;
  await store.revoke(hashApiKey(revoked));
  await write([later]);
  await cache.refresh();
  expect(cache.lookup(later)).toMatchObject(found);
  await documents.replaceOne({}, backup);
  await cache.refresh();
  expect(cache.lookup(kept)).toMatchObject(found);
  expect(cache.lookup(revoked)).toMatchObject({ known: true, revoked: true });
  expect(cache.lookup(later)).toEqual({ known: false });
});

test('a revoked key stays revoked although the document of keys is gone', async () => {
  const key = newApiKey();
  await write([key]);
  await cache.refresh();
  await stores.db.collection(PARTNER_KEYS).deleteMany({});
  await store.revoke(hashApiKey(key));
  await cache.refresh();
  expect(cache.lookup(key)).toMatchObject({ known: true, revoked: true });
});
