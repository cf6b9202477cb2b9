/** Group commit on the real store, through a proxy that can fail. */
import { afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { startMongoWire } from '../support/mongo-wire.ts';
import { newRecord } from '../support/records.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { createMongo } from '../../internal/platform/stores/mongo.ts';
import {
  type CommitResult,
  GroupCommit,
  groupCommitLimits,
  type GroupCommitLimits,
} from '../../internal/submission/group-commit.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';

const stores = await storesOfFile();
let proxy: TcpProxy;
const closers: (() => Promise<unknown>)[] = [];
/** The collection without the proxy. */
const stored = stores.requests;
/** The number of pending withdrawals that group commit reads. */
let pending: number;
let counted: { batches: number[]; notAccepted: string[]; waiting: number };

beforeAll(() => stored.insertOne(newRecord()));
beforeEach(async () => {
  proxy = await startTcpProxy(stores.mongodbUri);
  pending = 0;
  counted = { batches: [], notAccepted: [], waiting: 0 };
});
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close();
  await proxy.close();
});

interface Commits {
  /** Resolves to the kind of the result. */
  record(record: SubmissionRecord): Promise<CommitResult['kind']>;
}

async function groupCommit(
  limits: Partial<GroupCommitLimits> = {},
  { clock = systemClock, url = proxy.url } = {},
): Promise<Commits> {
  const client = createMongo(url, 'group commit test', {
    retryWrites: false,
    socketTimeoutMS: HANG_MS,
    serverSelectionTimeoutMS: HANG_MS,
    waitQueueTimeoutMS: HANG_MS,
    maxPoolSize: 3,
  });
  closers.push(() => client.close());
  const db = client.db(stores.database);
  // The time-out is short, so on a busy machine the connection may need a second try.
  await eventually('a connection', async () => {
    await db.collection(SUBMISSIONS).findOne({});
    return true;
  });
  const commits = new GroupCommit({
    pendingWithdrawals: () => pending,
    db,
    limits: { ...groupCommitLimits, ...limits },
    timeoutMs: HANG_MS,
    clock,
    metrics: {
      batchDocuments: { observe: (value) => counted.batches.push(value) },
      commitSeconds: { observe: () => {} },
      waitingDocuments: { set: (value) => (counted.waiting = value) },
    },
  });
  return {
    record: async (record) => {
      const result = await commits.record(record);
      if ('reason' in result) counted.notAccepted.push(result.reason);
      return result.kind;
    },
  };
}

const newRecords = (count: number): SubmissionRecord[] =>
  Array.from({ length: count }, () => newRecord());
const stateOf = async (record: SubmissionRecord): Promise<string | undefined> =>
  (await stored.findOne({ _id: record._id }))?.state;

test('records of one turn share inserts up to a bound, and each is stored as it was given', async () => {
  const commits = await groupCommit();
  const records = newRecords(1_000);
  expect(new Set(await Promise.all(records.map((record) => commits.record(record))))).toEqual(
    new Set(['stored']),
  );
  expect(counted.batches).toEqual([256, 256, 256, 232]);
  const ids = records.map((record) => record._id);
  const found = stored.find({ _id: { $in: ids } }).sort({ _id: 1 });
  expect(await found.toArray()).toEqual(
    records.toSorted((one, other) => (one._id < other._id ? -1 : 1)),
  );
});

test('an _id that exists fails its own document only', async () => {
  const taken = newRecord({}, '{"other":true}');
  await stored.insertOne(taken);
  const commits = await groupCommit();
  const records = [newRecord(), newRecord({ _id: taken._id }), newRecord()];
  expect(await Promise.all(records.map((record) => commits.record(record)))).toEqual([
    'stored',
    'in_doubt',
    'stored',
  ]);
  expect(counted).toMatchObject({ batches: [3], notAccepted: ['id_taken'] });
  expect(await stored.findOne({ _id: taken._id })).toEqual(taken);
  expect(await Promise.all(records.map(stateOf))).toEqual(['recorded', 'recorded', 'recorded']);
});

test('a partner with more records than fit delays only itself', async () => {
  const commits = await groupCommit({
    maxInFlight: 1,
    maxBatchDocuments: 4,
    maxWaitingDocuments: 8,
  });
  const written: string[] = [];
  const record = (partnerId: string): Promise<unknown> =>
    commits.record(newRecord({ partnerId })).then((kind) => written.push(`${partnerId} ${kind}`));
  proxy.holdRequests();
  const first = record('flood');
  await eventually('an insert to be under way', () => proxy.heldBytes() > 0);
  const others = [...Array.from({ length: 9 }, () => record('flood')), record('other')];
  proxy.pass();
  await Promise.all([first, ...others]);
  expect(counted).toMatchObject({ batches: [1, 4, 4], notAccepted: ['no_room', 'no_room'] });
  expect(written.slice(0, 2)).toEqual(['flood not_stored', 'flood not_stored']);
  expect(written.filter((each) => each.endsWith(' stored')).slice(0, 5)).toContain('other stored');
});

test('a record with less time than the last insert took lets others go first', async () => {
  let later = 0;
  const clock = { now: () => new Date(), monotonicMs: () => performance.now() + later };
  const commits = await groupCommit({ maxInFlight: 1, maxBatchDocuments: 1 }, { clock });
  const ended: string[] = [];
  const record = (name: string): Promise<unknown> =>
    commits.record(newRecord()).then((kind) => ended.push(`${name} ${kind}`));
  proxy.holdRequests();
  const slow = [record('slow'), record('old')];
  await eventually('an insert to be under way', () => proxy.heldBytes() > 0);
  later += HANG_MS * 0.6;
  const young = record('young');
  proxy.pass();
  await Promise.all([...slow, young]);
  expect(ended).toEqual(['slow stored', 'young stored', 'old stored']);
});

test('an answer for fewer documents than were sent leaves all of them in doubt', async () => {
  const wire = await startMongoWire(stores.mongodbUri);
  closers.push(() => wire.close());
  const commits = await groupCommit({}, { url: wire.url });
  wire.answer((command, reply) =>
    'insert' in command ? { ...reply, n: Number(reply['n']) - 1 } : undefined,
  );
  const results = await Promise.all(newRecords(3).map((record) => commits.record(record)));
  expect(results).toEqual(['in_doubt', 'in_doubt', 'in_doubt']);
  expect(counted.notAccepted).toEqual(['counts_differ', 'counts_differ', 'counts_differ']);
});

test('too many pending withdrawals also stop the records that wait already', async () => {
  const commits = await groupCommit({ maxInFlight: 1, maxBatchDocuments: 1 });
  pending = groupCommitLimits.maxPendingWithdrawals - 1;
  const [sent, waiting, late] = [newRecord(), newRecord(), newRecord()];
  const results = [commits.record(sent), commits.record(waiting)];
  // Both requests wait for the same turn; the bound is reached after the first is sent.
  setImmediate(() => (pending += 1));
  expect(await Promise.all(results)).toEqual(['stored', 'not_stored']);
  expect(await commits.record(late)).toBe('not_stored');
  expect(counted.notAccepted).toEqual(['withdrawals_pending', 'withdrawals_pending']);
  expect([await stateOf(waiting), await stateOf(late)]).toEqual([undefined, undefined]);
  pending = 0;
  expect(await commits.record(late)).toBe('stored');
});
