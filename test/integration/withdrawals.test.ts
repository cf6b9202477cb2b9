/**
 * Withdrawals against the real store: a 500 stays true whether the insert landed, lands late, or
 * never does.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Collection, MongoClient } from 'mongodb';
import { newRecord } from '../support/records.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';
import { systemClock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';

const DUPLICATE_KEY = 11_000;
const DAY_MS = 86_400_000;

let stores: TestStores;
let proxy: TcpProxy;
let client: MongoClient;
let stored: Collection<SubmissionRecord>;
let withdrawals: Withdrawals;
/** How often the number of pending ones was told: at each `add` and after each try. */
let told = 0;
let counted: { results: Record<string, number>; pending: number };

beforeAll(async () => {
  stores = await openTestStores();
  stored = stores.db.collection<SubmissionRecord>(SUBMISSIONS);
  await stored.insertOne(newRecord());
});
afterAll(() => stores.close());

beforeEach(async () => {
  proxy = await startTcpProxy(stores.mongodbUri);
  client = createMongo(proxy.url, 'withdrawals test', {
    socketTimeoutMS: 1_000,
    serverSelectionTimeoutMS: 1_000,
  });
  // A busy machine may not answer the first time.
  await eventually('the database', () => collectionOf(client).findOne({}));
  withdrawals = withdrawalsBy(client);
});

const collectionOf = (by: MongoClient): Collection<SubmissionRecord> =>
  by.db(stores.database).collection<SubmissionRecord>(SUBMISSIONS);

function withdrawalsBy(by: MongoClient): Withdrawals {
  counted = { results: {}, pending: 0 };
  return new Withdrawals({
    db: by.db(stores.database),
    retentionDays: 7,
    clock: systemClock,
    log: createLogger('test', 'silent'),
    metrics: {
      withdrawals: {
        inc: ({ result }, value = 1) => {
          counted.results[result] = (counted.results[result] ?? 0) + value;
        },
      },
      withdrawalsPending: {
        set: (value) => {
          counted.pending = value;
          told += 1;
        },
      },
    },
  });
}
afterEach(async () => {
  withdrawals.stop();
  await client.close();
  await proxy.close();
});

const find = (record: SubmissionRecord): Promise<SubmissionRecord | null> =>
  stored.findOne({ _id: record._id });

test('a record that never landed leaves a withdrawn one without its body, and a late insert then fails', async () => {
  const record = newRecord({}, '{"email":"late@example.com"}');
  withdrawals.add(record);
  await withdrawals.whenSettled();

  const withdrawn = await find(record);
  expect(withdrawn).toEqual({
    _id: record._id,
    receivedAt: record.receivedAt,
    partnerId: 'demo',
    remoteIp: '127.0.0.1',
    bodyBytes: record.bodyBytes,
    httpStatus: 500,
    schema: 1,
    state: 'withdrawn',
    stateAt: expect.any(Date),
    version: 0,
    attempts: 0,
    history: [
      {
        state: 'withdrawn',
        at: withdrawn?.stateAt,
        attempt: 0,
        reason: 'answered 500 while in doubt',
      },
    ],
    expiresAt: new Date((withdrawn?.stateAt.getTime() ?? 0) + 7 * DAY_MS),
  });
  expect(counted).toEqual({ results: { withdrawn: 1 }, pending: 0 });

  await expect(stored.insertOne(record)).rejects.toMatchObject({ code: DUPLICATE_KEY });
  expect((await find(record))?.state).toBe('withdrawn');
});

test('a record that a worker has claimed or ended is left alone and counted, and its neighbours are withdrawn', async () => {
  const claimed = newRecord({ version: 1 });
  const completed = newRecord({ version: 2, state: 'completed' });
  const ended = newRecord({ version: 0, state: 'dead_lettered' });
  await stored.insertMany([claimed, completed, ended]);
  const [landed, malformed, missing] = [
    newRecord(),
    newRecord({ state: 'malformed' }),
    newRecord(),
  ];
  await stored.insertMany([landed, malformed]);
  for (const record of [landed, claimed, malformed, missing, completed, ended])
    withdrawals.add(record);
  await withdrawals.whenSettled();
  for (const record of [claimed, completed, ended]) expect(await find(record)).toEqual(record);
  for (const record of [landed, malformed, missing])
    expect(await find(record)).toMatchObject({ state: 'withdrawn', httpStatus: 500, version: 0 });
  const found = await find(landed);
  expect(found).not.toHaveProperty('dueAt');
  expect(found).toMatchObject({ bodySha256: landed.bodySha256 });
  expect(found?.history.map((entry) => entry.state)).toEqual(['recorded', 'withdrawn']);
  expect(counted).toEqual({ results: { withdrawn: 3, too_late: 3 }, pending: 0 });
});

test.each([
  ['hung', (): void => proxy.holdRequests()],
  ['heard but not answering', (): void => proxy.dropReplies()],
])(
  'while the store is %s nothing counts as settled, and afterwards everything is',
  async (_name, harm) => {
    const [landed, missing] = [newRecord(), newRecord()];
    await stored.insertOne(landed);
    harm();
    withdrawals.add(landed);
    withdrawals.add(missing);
    let settled = false;
    const whenSettled = withdrawals.whenSettled().then(() => (settled = true));
    const before = told;
    await eventually('a few tries to have failed', () => told >= before + 2);
    expect({ settled, ...counted }).toEqual({ settled: false, results: {}, pending: 2 });
    proxy.pass();
    proxy.cut();
    await whenSettled;
    expect([(await find(landed))?.state, (await find(missing))?.state]).toEqual([
      'withdrawn',
      'withdrawn',
    ]);
    expect(counted).toEqual({ results: { withdrawn: 2 }, pending: 0 });
  },
);

test('withdrawals that a rollback took back are made again', async () => {
  const set = await startReplicaSet(stores.mongodbUri);
  const stalled = createMongo((await set.door()).url, 'withdrawals rolled back');
  try {
    withdrawals = withdrawalsBy(stalled);
    const record = newRecord();
    await stored.insertOne(record);
    await collectionOf(stalled).findOne({});
    set.stallMajority();
    withdrawals.add(record);
    await eventually(
      'the withdrawal to apply',
      async () => (await find(record))?.state === 'withdrawn',
    );
    await set.rollBack();
    await withdrawals.whenSettled();
    expect((await find(record))?.state).toBe('withdrawn');
    expect(counted).toEqual({ results: { withdrawn: 1 }, pending: 0 });
  } finally {
    await stalled.close();
    await set.close();
  }
});
