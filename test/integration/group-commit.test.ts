/**
 * Group commit against the real store, through a connection that can be harmed where that matters.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Collection, MongoClient } from 'mongodb';
import { startMongoWire, type MongoWire } from '../support/mongo-wire.ts';
import { newRecord } from '../support/records.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { systemClock, type Clock } from '../../internal/platform/clock.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import type { CommitResult } from '../../internal/submission/commit-entry.ts';
import { GroupCommit } from '../../internal/submission/group-commit.ts';
import { groupCommitLimits, type GroupCommitLimits } from '../../internal/submission/limits.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';

/** Of tests that wait for it to pass. */
const TIMEOUT_MS = 1_500;
/**
 * The database waits nine tenths of it for its majority; in the rest the answer arrives, on a busy
 * machine as well.
 */
const STALLED_TIMEOUT_MS = 10_000;

let stores: TestStores;
let proxy: TcpProxy;
let client: MongoClient;
/** With `TIMEOUT_MS`, for what runs into it. */
let impatient: MongoClient;
/** The store's own view, past the proxy. */
let stored: Collection<SubmissionRecord>;
/** Withdrawals said to be pending. */
let pending: number;
let counted: { batches: number[]; notAccepted: string[]; dropped: number; waiting: number };

beforeAll(async () => {
  stores = await openTestStores();
  stored = stores.db.collection<SubmissionRecord>(SUBMISSIONS);
  await stored.insertOne(newRecord());
});
afterAll(() => stores.close());

beforeEach(async () => {
  proxy = await startTcpProxy(stores.mongodbUri);
  [client, impatient] = await Promise.all([connect(HANG_MS), connect(TIMEOUT_MS)]);
  pending = 0;
  counted = { batches: [], notAccepted: [], dropped: 0, waiting: 0 };
});
afterEach(async () => {
  await Promise.all([client.close(), impatient.close()]);
  await proxy.close();
});

async function connect(timeoutMs: number): Promise<MongoClient> {
  const connected = createMongo(proxy.url, 'group commit test', {
    retryWrites: false,
    socketTimeoutMS: timeoutMs,
    serverSelectionTimeoutMS: timeoutMs,
    waitQueueTimeoutMS: timeoutMs,
    maxPoolSize: 3,
  });
  // The time-out is for the writes of the tests: on a busy machine the first contact may need
  // another try.
  await eventually('a connection', async () => {
    await connected.db(stores.database).collection(SUBMISSIONS).findOne({});
    return true;
  });
  return connected;
}

interface Means {
  readonly clock?: Clock;
  readonly by?: MongoClient;
  readonly timeoutMs?: number;
}

type Commits = Pick<GroupCommit, 'offer' | 'whenIdle'> & {
  /** The kind of the result. */
  record(record: SubmissionRecord): Promise<CommitResult['kind']>;
};

function groupCommit(
  limits: Partial<GroupCommitLimits> = {},
  { clock = systemClock, by = client, timeoutMs = HANG_MS }: Means = {},
): Commits {
  const commits = new GroupCommit({
    pendingWithdrawals: () => pending,
    db: by.db(stores.database),
    limits: { ...groupCommitLimits, ...limits },
    timeoutMs,
    clock,
    metrics: {
      batchDocuments: { observe: (value) => counted.batches.push(value) },
      commitSeconds: { observe: () => {} },
      waitingDocuments: { set: (value) => (counted.waiting = value) },
      notAccepted: { inc: ({ reason }) => counted.notAccepted.push(reason) },
      refusedDropped: { inc: () => (counted.dropped += 1) },
    },
  });
  return {
    record: async (record) => (await commits.record(record)).kind,
    offer: (record, dropped) => commits.offer(record, dropped),
    whenIdle: () => commits.whenIdle(),
  };
}

/** One that gives up after `TIMEOUT_MS`. */
const impatientCommit = (limits: Partial<GroupCommitLimits> = {}): Commits =>
  groupCommit(limits, { by: impatient, timeoutMs: TIMEOUT_MS });

const newRecords = (count: number): SubmissionRecord[] =>
  Array.from({ length: count }, () => newRecord());
const stateOf = async (record: SubmissionRecord): Promise<string | undefined> =>
  (await stored.findOne({ _id: record._id }))?.state;

describe('sharing batches', () => {
  test('a lone record is committed alone, and stored as it was given', async () => {
    const record = newRecord({}, '{"email":"ü@example.com"}');
    expect(await groupCommit().record(record)).toBe('stored');
    expect(counted.batches).toEqual([1]);
    expect(await stored.findOne({ _id: record._id })).toEqual(record);
  });

  test('records of one turn of the event loop share one insert', async () => {
    const commits = groupCommit();
    const records = newRecords(100);
    expect(new Set(await Promise.all(records.map((record) => commits.record(record))))).toEqual(
      new Set(['stored']),
    );
    expect(counted.batches).toEqual([100]);
  });

  test('a thousand records need few inserts, none larger than its bound, and every one is there', async () => {
    const commits = groupCommit();
    const records = newRecords(1_000);
    expect(new Set(await Promise.all(records.map((record) => commits.record(record))))).toEqual(
      new Set(['stored']),
    );
    expect(counted.batches).toEqual([256, 256, 256, 232]);
    expect(await stored.countDocuments({ _id: { $in: records.map((record) => record._id) } })).toBe(
      1_000,
    );
  });

  test('a batch is bounded in bytes, but one record always fits', async () => {
    const commits = groupCommit({ maxBatchBytes: 3_000 });
    const records = [newRecord({}, 'x'.repeat(5_000)), ...newRecords(5)];
    await Promise.all(records.map((record) => commits.record(record)));
    expect(counted.batches).toEqual([1, 4, 1]);
  });
});

describe('an _id that exists', () => {
  test('fails its own document only', async () => {
    const taken = newRecord({}, '{"other":true}');
    await stored.insertOne(taken);
    const commits = groupCommit();
    const records = [newRecord(), newRecord({ _id: taken._id }), newRecord()];
    expect(await Promise.all(records.map((record) => commits.record(record)))).toEqual([
      'stored',
      'not_stored',
      'stored',
    ]);
    expect(counted).toMatchObject({ batches: [3], notAccepted: ['id_taken'] });
    expect(await stored.findOne({ _id: taken._id })).toEqual(taken);
    expect(await Promise.all(records.map(stateOf))).toEqual(['recorded', 'recorded', 'recorded']);
  });

  test('as this very record counts as stored', async () => {
    const record = newRecord();
    await stored.insertOne(record);
    expect(await groupCommit().record(record)).toBe('stored');
    expect(counted.notAccepted).toEqual([]);
  });

  test('as the same body received at another time is somebody else', async () => {
    const record = newRecord();
    await stored.insertOne({ ...record, receivedAt: new Date(0) });
    expect(await groupCommit().record(record)).toBe('not_stored');
  });

  test('as a withdrawal means refused, and stays withdrawn', async () => {
    const record = newRecord();
    await stored.insertOne({ ...record, state: 'withdrawn' });
    expect(await groupCommit().record(record)).toBe('not_stored');
    expect(await stateOf(record)).toBe('withdrawn');
  });
});

describe('bounds', () => {
  test('beyond the documents that may wait a record is refused at once', async () => {
    const commits = groupCommit({ maxWaitingDocuments: 3 });
    const over = newRecord();
    const kept = newRecords(3).map((record) => commits.record(record));
    expect(await Promise.race([commits.record(over), Promise.race(kept)])).toBe('not_stored');
    expect(await Promise.all(kept)).toEqual(['stored', 'stored', 'stored']);
    expect(counted.notAccepted).toEqual(['no_room']);
    expect(await stateOf(over)).toBeUndefined();
    // The room is free again.
    expect(await commits.record(over)).toBe('stored');
  });

  test('beyond the bytes that may wait, too', async () => {
    const commits = groupCommit({ maxWaitingBytes: 2_000 });
    const results = ['x'.repeat(1_200), 'x'.repeat(200)].map((text) =>
      commits.record(newRecord({}, text)),
    );
    expect(await Promise.all(results)).toEqual(['stored', 'not_stored']);
    expect(await commits.record(newRecord({}, 'x'.repeat(1_200)))).toBe('stored');
  });

  test('a record that has waited its time unsent is refused, and never sent', async () => {
    const commits = impatientCommit({ maxInFlight: 1, maxBatchDocuments: 1 });
    proxy.holdRequests();
    const [sent, unsent] = [newRecord(), newRecord()];
    expect(await Promise.all([commits.record(sent), commits.record(unsent)])).toEqual([
      'in_doubt',
      'not_stored',
    ]);
    await commits.whenIdle();
    proxy.pass();
    // The held insert arrives late, which is why it was in doubt.
    await eventually('the late insert', async () => (await stateOf(sent)) === 'recorded');
    expect(await stateOf(unsent)).toBeUndefined();
  });

  test('a record whose time is all but over is refused, because no answer could come in time, and never sent', async () => {
    let later = 0;
    const clock = { now: () => new Date(), monotonicMs: () => performance.now() + later };
    const commits = groupCommit(
      { maxInFlight: 1, maxBatchDocuments: 1, minSendBudgetMs: HANG_MS },
      { clock },
    );
    proxy.holdRequests();
    const [sent, unsent] = [newRecord(), newRecord()];
    const results = Promise.all([commits.record(sent), commits.record(unsent)]);
    await eventually('the first insert to be under way', () => proxy.heldBytes() > 0);
    // A quarter of it is left, which no sweep ends, but less than half of it is too little to send
    // anything.
    later = HANG_MS * 0.75;
    proxy.pass();
    expect((await results)[1]).toBe('not_stored');
    expect(counted.notAccepted).toContain('timed_out_waiting');
    await commits.whenIdle();
    expect(counted.batches).toEqual([1]);
    expect(await stateOf(unsent)).toBeUndefined();
  });

  test('what is offered uses spare room only, and is dropped beyond it', async () => {
    const commits = groupCommit({ maxWaitingDocuments: 8, spareShare: 0.25 });
    const offered = newRecords(3).map((record) => ({ ...record, state: 'refused' as const }));
    for (const record of offered) commits.offer(record);
    expect(counted.dropped).toBe(1);
    await commits.whenIdle();
    expect(await Promise.all(offered.map(stateOf))).toEqual(['refused', 'refused', undefined]);

    const wanted = newRecords(2).map((record) => commits.record(record));
    commits.offer(newRecord());
    expect(counted.dropped).toBe(2);
    expect(await Promise.all(wanted)).toEqual(['stored', 'stored']);
  });

  test('what is offered goes after what was asked for', async () => {
    const commits = groupCommit({ maxInFlight: 1, maxBatchDocuments: 2 });
    const offered = newRecord();
    commits.offer(offered);
    for (const record of newRecords(2)) void commits.record(record);
    await commits.whenIdle();
    expect(counted.batches).toEqual([2, 1]);
    expect(await stateOf(offered)).toBe('recorded');
  });

  test('what is offered during an outage is dropped in time', async () => {
    const commits = impatientCommit();
    proxy.holdRequests();
    commits.offer(newRecord());
    await commits.whenIdle();
    expect(counted.dropped).toBe(1);
  });
});

describe('an answer that does not confirm', () => {
  let wire: MongoWire;
  let through: MongoClient;
  beforeEach(async () => {
    wire = await startMongoWire(stores.mongodbUri);
    through = createMongo(wire.url, 'group commit test', { retryWrites: false });
  });
  afterEach(async () => {
    await through.close();
    await wire.close();
  });

  test('a write concern error means in doubt: written, but perhaps lost with its server', async () => {
    const error = {
      code: 64,
      codeName: 'WriteConcernTimeout',
      errmsg: 'waiting for replication timed out',
    };
    wire.answer((command, reply) =>
      'insert' in command ? { ...reply, writeConcernError: error } : undefined,
    );
    const commits = groupCommit({}, { by: through });
    const taken = newRecord({}, '{"other":true}');
    await stored.insertOne(taken);
    const records = [newRecord(), newRecord({ _id: taken._id })];
    expect(await Promise.all(records.map((record) => commits.record(record)))).toEqual([
      'in_doubt',
      'not_stored',
    ]);
    expect(counted.notAccepted).toEqual(['write_concern', 'id_taken']);
  });

  test('fewer documents than were sent mean in doubt, all of them: which one is missing is not told', async () => {
    wire.answer((command, reply) =>
      'insert' in command ? { ...reply, n: Number(reply['n']) - 1 } : undefined,
    );
    const commits = groupCommit({}, { by: through });
    const results = await Promise.all(newRecords(3).map((record) => commits.record(record)));
    expect(results).toEqual(['in_doubt', 'in_doubt', 'in_doubt']);
    expect(counted.notAccepted).toEqual(['counts_differ', 'counts_differ', 'counts_differ']);
  });
});

describe('a connection in trouble', () => {
  test('without an answer every document is in doubt, while the connection still says nothing, though it may well be stored', async () => {
    const commits = impatientCommit();
    proxy.dropReplies();
    const records = newRecords(3);
    const results = await Promise.all(records.map((record) => commits.record(record)));
    expect(results).toEqual(['in_doubt', 'in_doubt', 'in_doubt']);
    for (const record of records)
      await eventually('the record', async () => (await stateOf(record)) === 'recorded');
  });

  test('cut before an answer every document is in doubt: a lost connection never looks like success', async () => {
    const commits = groupCommit();
    proxy.holdRequests();
    const results = Promise.all(newRecords(2).map((record) => commits.record(record)));
    await eventually('the insert to be under way', () => proxy.heldBytes() > 0);
    proxy.cut();
    expect(await results).toEqual(['in_doubt', 'in_doubt']);
  });

  test('a server that is not there refuses or leaves in doubt, and never stores', async () => {
    await proxy.close();
    proxy.cut();
    const results = await Promise.all(
      newRecords(2).map((record) => impatientCommit().record(record)),
    );
    expect(results).not.toContain('stored');
  });

  test('the slots are free again after an outage, and it goes on', async () => {
    const commits = impatientCommit({ maxBatchDocuments: 1 });
    proxy.holdRequests();
    await Promise.all(newRecords(4).map((record) => commits.record(record)));
    await commits.whenIdle();
    proxy.pass();
    expect(
      await eventually(
        'a record to be stored',
        async () => (await commits.record(newRecord())) === 'stored',
      ),
    ).toBe(true);
    expect(counted.waiting).toBe(0);
  });
});

test('whenIdle resolves at once when idle, and else when the last record has its fate', async () => {
  const commits = groupCommit();
  await commits.whenIdle();
  const fates: unknown[] = [];
  for (const record of newRecords(5)) void commits.record(record).then((fate) => fates.push(fate));
  await commits.whenIdle();
  await Promise.resolve();
  expect(fates).toHaveLength(5);
});

describe('a stall of the majority', () => {
  test('leaves writes in doubt by an answer of the server, on connections that stay', async () => {
    const set = await startReplicaSet(stores.mongodbUri);
    const stalled = createMongo((await set.door()).url, 'stalled commit', {
      retryWrites: false,
      socketTimeoutMS: STALLED_TIMEOUT_MS,
    });
    try {
      const commits = groupCommit({}, { by: stalled, timeoutMs: STALLED_TIMEOUT_MS });
      expect(await commits.record(newRecord())).toBe('stored');
      const opened = set.opened();
      set.stallMajority();
      for (let round = 0; round < 2; round += 1) {
        const records = newRecords(10);
        const results = await Promise.all(records.map((record) => commits.record(record)));
        expect(new Set(results)).toEqual(new Set(['in_doubt']));
        expect(new Set(await Promise.all(records.map(stateOf)))).toEqual(new Set(['recorded']));
        await commits.whenIdle();
      }
      expect(set.opened()).toBe(opened);
      expect(new Set(counted.notAccepted)).toEqual(new Set(['write_concern']));
      set.resumeMajority();
      expect(await commits.record(newRecord())).toBe('stored');
    } finally {
      await stalled.close();
      await set.close();
    }
  });

  test('sends nothing while too many withdrawals are pending, also of what waits already', async () => {
    const commits = groupCommit({ maxInFlight: 1, maxBatchDocuments: 1 });
    pending = groupCommitLimits.maxPendingWithdrawals - 1;
    const [sent, waiting, late] = [newRecord(), newRecord(), newRecord()];
    const results = [commits.record(sent), commits.record(waiting)];
    // Both wait for the same turn of the event loop; the first is sent in it, and then the bound is
    // reached.
    setImmediate(() => (pending += 1));
    expect(await Promise.all(results)).toEqual(['stored', 'not_stored']);
    expect(await commits.record(late)).toBe('not_stored');
    expect(counted.notAccepted).toEqual(['withdrawals_pending', 'withdrawals_pending']);
    expect([await stateOf(waiting), await stateOf(late)]).toEqual([undefined, undefined]);
    pending = 0;
    expect(await commits.record(late)).toBe('stored');
  });
});
