/** Faults of indexes are reported, and end once they are corrected. */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import type { Db, MongoClient } from 'mongodb';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createMongo } from '../../internal/platform/stores/mongo.ts';
import {
  ensureIndexes,
  makeFirstContact,
  type IndexDefinition,
} from '../../internal/platform/stores/mongo-indexes.ts';
import { startReplicaSet, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { HANG_MS, eventually } from '../support/wait.ts';

const log = createLogger('test', 'silent');
const SOCKET_TIMEOUT_MS = 2_000;
/** Longer than several socket time-outs and the report of a build. */
const BUILD_MS = 7_000;
const DUE: IndexDefinition = {
  collection: 'things',
  name: 'things_due',
  key: { state: 1, dueAt: 1 },
  partialFilterExpression: { dueAt: { $exists: true } },
};

const stores = await storesOfFile();
let set: ReplicaSet;
let client: MongoClient;
let db: Db;

beforeEach(async () => {
  set = await startReplicaSet(stores.mongodbUri);
  client = createMongo((await set.door()).url, 'indexes', {
    socketTimeoutMS: SOCKET_TIMEOUT_MS,
    serverSelectionTimeoutMS: HANG_MS,
  });
  db = client.db(stores.database);
  await stores.db.dropCollection('things');
});
afterEach(async () => {
  await client.close();
  await set.close();
});

test('an index with another filter is reported, and is right once it is dropped', async () => {
  const other = { partialFilterExpression: { state: { $exists: true } } };
  await ensureIndexes(db, [{ ...DUE, ...other }]);
  // An index as defined is no fault.
  await ensureIndexes(db, [{ ...DUE, ...other }]);
  const ensuring = makeFirstContact(db, [DUE], log);
  const words =
    'things: index things_due exists under another name or definition; drop it, and it is made again';
  await eventually('the fault', () => ensuring.faults()[0]?.words === words);
  await db.collection('things').dropIndex('things_due');
  await ensuring.whenDone;
  expect(ensuring.faults()).toEqual([]);
});

test.each([
  [13, 'Unauthorized', /^things: indexes things_due: the user of MONGODB_URI has no right/],
  [85, 'IndexOptionsConflict', /^things: indexes things_due exists under another name/],
])('an index answered with %d is reported as %s', async (code, codeName, words) => {
  set.refuse('createIndexes', { code, codeName });
  const ensuring = makeFirstContact(db, [DUE], log);
  await eventually('the fault', () => words.test(ensuring.faults()[0]?.words ?? ''));
  set.refuse('createIndexes');
  await ensuring.whenDone;
});

test('a long index build is reported as one, and is requested once', async () => {
  set.holdReplies('createIndexes', BUILD_MS);
  const ensuring = makeFirstContact(db, [DUE], log);
  await eventually(
    'the build',
    () => ensuring.faults()[0]?.words === 'indexes of things are being built: things_due',
  );
  await ensuring.whenDone;
  expect(set.commands.get('createIndexes')).toBe(1);
});
