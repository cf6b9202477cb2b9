/** Withdrawals on the real store. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Collection, MongoClient } from 'mongodb';
import { newRecord } from '../support/records.ts';
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
/** The number of reports of pending withdrawals. */
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
  // A busy machine may need a second try.
  const db = client.db(stores.database);
  await eventually('the database', () => db.collection(SUBMISSIONS).findOne({}));
  counted = { results: {}, pending: 0 };
  withdrawals = new Withdrawals({
    db,
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
});
afterEach(async () => {
  withdrawals.stop();
  await client.close();
  await proxy.close();
});

const find = (record: SubmissionRecord): Promise<SubmissionRecord | null> =>
  stored.findOne({ _id: record._id });

test('a withdrawal of a record that was never stored makes a late insert fail', async () => {
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

test('while the store hangs no withdrawal is confirmed, and afterwards each is', async () => {
  const claimed = newRecord({ version: 1 });
  const [landed, missing] = [newRecord(), newRecord()];
  await stored.insertMany([claimed, landed]);
  proxy.holdRequests();
  for (const record of [claimed, landed, missing]) withdrawals.add(record);
  let settled = false;
  const whenSettled = withdrawals.whenSettled().then(() => (settled = true));
  const before = told;
  await eventually('a few tries to have failed', () => told >= before + 2);
  expect({ settled, ...counted }).toEqual({ settled: false, results: {}, pending: 3 });
  proxy.pass();
  proxy.cut();
  await whenSettled;
  expect(await find(claimed)).toEqual(claimed);
  expect([(await find(landed))?.state, (await find(missing))?.state]).toEqual([
    'withdrawn',
    'withdrawn',
  ]);
  expect(counted).toEqual({ results: { withdrawn: 2, too_late: 1 }, pending: 0 });
});
