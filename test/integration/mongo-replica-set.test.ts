/** Our stores on a replica set that elects, stalls, loses and cuts off: the set is played in front of the real store. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Collection, MongoClient } from 'mongodb';
import { newRecord } from '../support/records.ts';
import { startReplicaSet, type Door, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';

let stores: TestStores;
/** The store's own view, past the set. */
let stored: Collection<SubmissionRecord>;
let set: ReplicaSet;
let door: Door;
let client: MongoClient;
let records: Collection<SubmissionRecord>;

beforeAll(async () => {
  stores = await openTestStores();
  stored = stores.db.collection<SubmissionRecord>(SUBMISSIONS);
  await stored.insertOne(newRecord());
});
afterAll(() => stores.close());
beforeEach(async () => {
  set = await startReplicaSet(stores.mongodbUri);
  door = await set.door();
  client = createMongo(door.url, 'replica set test');
  records = client.db(stores.database).collection<SubmissionRecord>(SUBMISSIONS);
});
afterEach(async () => {
  await client.close();
  await set.close();
});

const stateOf = async (record: SubmissionRecord): Promise<string | undefined> =>
  (await stored.findOne({ _id: record._id }))?.state;

test('a driver finds a set of three, and follows an election with its connections open', async () => {
  const roles: string[] = [];
  client.on('topologyDescriptionChanged', ({ newDescription }) => {
    roles.push(
      [...newDescription.servers.values()]
        .map(({ type }) => type)
        .toSorted()
        .join(),
    );
  });
  await records.insertOne(newRecord());
  await eventually('three members', () => roles.includes('RSPrimary,RSSecondary,RSSecondary'));
  const opened = set.opened();
  const stepping = set.stepDown(500);
  await eventually('no primary', () => roles.includes('RSSecondary,RSSecondary,RSSecondary'));
  const record = newRecord();
  // The driver waits for the new primary.
  await records.insertOne(record);
  await stepping;
  expect(await stateOf(record)).toBe('recorded');
  expect(roles.at(-1)).toBe('RSPrimary,RSSecondary,RSSecondary');
  expect(set.opened() - opened).toBeLessThan(5);
});

test('a stall of the majority applies writes, acknowledges none, and a rollback takes them back', async () => {
  const [before, during] = [newRecord(), newRecord()];
  await records.insertOne(before);
  set.stallMajority();
  const write = { writeConcern: { w: 'majority', wtimeoutMS: 200 } } as const;
  await expect(records.insertOne(during, write)).rejects.toMatchObject({ code: 64 });
  await expect(records.updateOne({ _id: before._id }, { $set: { state: 'withdrawn' } }, write)).rejects.toMatchObject({
    code: 64,
  });
  expect([await stateOf(before), await stateOf(during)]).toEqual(['withdrawn', 'recorded']);
  const majority = records.find({ _id: { $in: [before._id, during._id] } }, { readConcern: 'majority' });
  expect(await majority.toArray()).toEqual([]);
  await set.rollBack();
  expect([await stateOf(before), await stateOf(during)]).toEqual(['recorded', undefined]);
  await records.updateOne({ _id: before._id }, { $set: { state: 'withdrawn' } });
  expect(await stateOf(before)).toBe('withdrawn');
});

test('what was held is acknowledged once the majority is back', async () => {
  set.stallMajority();
  let acknowledged = false;
  const record = newRecord();
  const insert = records.insertOne(record).then(() => (acknowledged = true));
  await eventually('the insert to apply', async () => (await stateOf(record)) === 'recorded');
  expect(acknowledged).toBe(false);
  set.resumeMajority();
  await insert;
});

test('a door that is cut off says nothing, and what was sent through it arrives late', async () => {
  const other = createMongo((await set.door()).url, 'other');
  await records.findOne({});
  door.part();
  const record = newRecord();
  const insert = records.insertOne(record);
  insert.catch(() => undefined);
  await other.db(stores.database).collection<SubmissionRecord>(SUBMISSIONS).insertOne(newRecord());
  expect(await stateOf(record)).toBeUndefined();
  door.join();
  await insert;
  expect(await stateOf(record)).toBe('recorded');
  await other.close();
});
