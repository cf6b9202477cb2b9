/**
 * MongoDB away at the very start: the driver's client stays closed after a failed first connection,
 * ours must not.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { startMongo, type Store } from '../../deploy/local/stores.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { connectUntilDone, ensureIndexesUntilDone } from '../../internal/platform/mongo-indexes.ts';
import { eventually } from '../support/wait.ts';

const log = createLogger('test', 'silent');
const SELECTION_TIMEOUT_MS = 100;
let store: Store;

beforeAll(async () => {
  store = await startMongo({ log: () => {} });
  await store.signal('SIGKILL');
});
afterAll(() => store.stop());

test('clients whose first connections failed work once MongoDB is there, and say until then where they look', async () => {
  const options = { serverSelectionTimeoutMS: SELECTION_TIMEOUT_MS };
  const [plain, indexed] = [
    createMongo(store.url, 'plain', options),
    createMongo(store.url, 'indexed', options),
  ];
  const db = indexed.db('first_contact');
  const connecting = connectUntilDone(plain, log);
  const indexes = ensureIndexesUntilDone(
    db,
    [{ collection: 'things', name: 'things_a', key: { a: 1 } }],
    log,
  );
  const where = new URL(store.url.replace('mongodb:', 'http:')).host;
  for (const waiting of [connecting, indexes]) {
    await eventually('a fault that says where', () =>
      waiting.faults()[0]?.includes(`MongoDB at ${where}: the connection is refused`),
    );
  }
  await expect(plain.db('first_contact').collection('things').insertOne({})).rejects.toThrow();

  await store.restart();
  await Promise.all([connecting.whenDone, indexes.whenDone]);
  expect([...connecting.faults(), ...indexes.faults()]).toEqual([]);
  await plain.db('first_contact').collection('things').insertOne({});
  expect((await db.collection('things').indexes()).map((index) => index.name)).toContain(
    'things_a',
  );
  await Promise.all([plain.close(), indexed.close()]);
});
