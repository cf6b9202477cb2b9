/** Reconcile and claims on the real store, with a test clock. */
import { beforeEach, expect, test } from '@jest/globals';
import type { Work } from '../../internal/processor/line.ts';
import { Reconcile } from '../../internal/processor/reconcile.ts';
import { DueWork, DUE_PAGE, type DueRecord } from '../../internal/submission/due-work.ts';
import {
  CLAIM_MS,
  FIRST_DUE_MS,
  FIRST_SIGHT_GRACE_MS,
  RECORD_SCHEMA,
  type SubmissionRecord,
} from '../../internal/submission/submission.ts';
import { type State } from '../../internal/submission/states.ts';
import { later } from '../../internal/platform/process/clock.ts';
import { DatabaseClock } from '../../internal/platform/stores/database-clock.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { retention, newTestClock, recordOf } from '../support/records.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { timedDatabase } from '../support/timed-database.ts';
import { newApplication } from '../support/world.ts';

const stores = await storesOfFile({ indexes: true });
const collection = stores.requests;
const clock = newTestClock();
const store = new WorkerMoves({ db: stores.db, retention, clock });
const due = new DueWork({ db: stores.db, clock });

let found: readonly Work[];
let held: string[];
let moreIsDue: boolean;
let takesWrites: () => Promise<boolean>;
let reconcile: Reconcile;

beforeEach(async () => {
  await collection.deleteMany({});
  held = [];
  takesWrites = () => store.takesWrites();
  reconcile = newReconcile();
  await reconcile.round();
  clock.advance(FIRST_SIGHT_GRACE_MS);
});

const newReconcile = (busy = false) =>
  new Reconcile({
    due,
    store: { takesWrites: () => takesWrites(), releaseInDoubt: () => store.releaseInDoubt() },
    holds: { partners: () => held },
    clock,
    line: { put: (works) => void (found = works), isLow: () => true, hasten: () => false, busy },
  });

/** Runs one round; returns the found records as "id version". */
async function round(): Promise<string[]> {
  found = [];
  moreIsDue = await reconcile.round();
  return found.map(({ requestId, version }) => `${requestId} ${version}`);
}

const lost = (): number => found.filter((work) => work.lost).length;

async function insert(more: Partial<SubmissionRecord> = {}): Promise<SubmissionRecord> {
  const record = recordOf(newApplication(), clock.now(), more);
  await collection.insertOne(record);
  return record;
}

const read = async (record: SubmissionRecord): Promise<SubmissionRecord> =>
  (await collection.findOne({ _id: record._id }))!;
const position = (record: SubmissionRecord, version: number) =>
  ({ _id: record._id, state: 'recorded', version }) as const;

test('an unclaimed record is marked when first found, and processed after the grace period', async () => {
  const record = await insert();
  expect(await round()).toEqual([]);
  clock.advance(FIRST_DUE_MS);
  expect(await round()).toEqual([]);
  expect(await read(record)).toMatchObject({ firstSeenAt: clock.now(), version: 0 });
  clock.advance(FIRST_SIGHT_GRACE_MS - 1);
  expect(await round()).toEqual([]);
  clock.advance(1);
  expect(await round()).toEqual([`${record._id} 0`]);
  expect(lost()).toBe(1);
});

test('while writes are not durable, unclaimed records wait for their withdrawal', async () => {
  await collection.insertMany(
    Array.from({ length: DUE_PAGE + 1 }, () => recordOf(newApplication(), clock.now(), {})),
  );
  clock.advance(FIRST_DUE_MS);
  takesWrites = () => Promise.resolve(false);
  do expect(await round()).toEqual([]);
  while (moreIsDue);
  clock.advance(2 * FIRST_SIGHT_GRACE_MS);
  const claimed = await insert({ version: 1, dueAt: new Date(1) });
  expect(await round()).toEqual([`${claimed._id} 1`]);
  // A page full of waiting records must not cause another round at once.
  expect(moreIsDue).toBe(false);
  await collection.deleteOne({ _id: claimed._id });
  takesWrites = () => Promise.reject(new Error('no answer'));
  expect(await round()).toEqual([]);
  takesWrites = () => store.takesWrites();
  expect(await round()).toEqual([]);
  clock.advance(FIRST_SIGHT_GRACE_MS - 1);
  expect(await round()).toEqual([]);
  clock.advance(1);
  expect(await round()).toHaveLength(DUE_PAGE);
  expect(moreIsDue).toBe(true);
});

test.each(['recorded', 'account_created'] as const)(
  'one partner’s backlog of %s does not hide other work, and a hold is skipped',
  async (state) => {
    const old = { state, version: 1, dueAt: clock.now() } as const;
    await collection.insertMany(
      Array.from({ length: DUE_PAGE + 1 }, () => recordOf(newApplication(), clock.now(), old)),
    );
    clock.advance(FIRST_DUE_MS);
    const late = { ...old, dueAt: clock.now() };
    const other = await insert({ ...late, partnerId: 'small' });
    const onHold = await insert({ ...late, partnerId: 'held' });
    const account = await insert({ ...late, state: 'recorded', partnerId: 'third' });
    held = ['held'];
    await round();
    const ids = found.map(({ requestId }) => requestId);
    expect(ids).toEqual(expect.arrayContaining([other._id, account._id]));
    expect(ids).not.toContain(onHold._id);
    expect(moreIsDue).toBe(true);
    expect(lost()).toBe(0);
  },
);

test('records of a newer schema or an unknown state are left alone and counted', async () => {
  const newer = await insert({ schema: RECORD_SCHEMA + 1, version: 1 });
  const strange = await insert({ state: 'on_holiday' as State, version: 1 });
  clock.advance(FIRST_DUE_MS);
  expect(await round()).toEqual([]);
  expect(await due.countUnknown(9)).toBe(2);
  expect(await store.claim(newer._id, 1)).toBeUndefined();
  expect(await store.claim(strange._id, 1)).toBeUndefined();
  expect(await read(newer)).toEqual(newer);
});

test('a process that does nothing for a minute is not live, unless it has work in hand', async () => {
  const [idle, busy] = [newReconcile(), newReconcile(true)];
  clock.advance(60_000);
  expect(busy.faults(60_000)).toEqual([]);
  expect(idle.faults(60_000)).toMatchObject([
    { words: 'nothing was read for 60 s, and no work is in hand' },
  ]);
  await idle.round();
  expect(idle.faults(60_000)).toEqual([]);
});

test('an expired claim counts as a crash of its worker, until a worker gives a verdict', async () => {
  const record = await insert();
  await store.claim(record._id, 0);
  clock.advance(CLAIM_MS);
  expect(await store.claim(record._id, 1)).toMatchObject({
    version: 2,
    crashes: 1,
    takenOver: true,
  });
  await store.putApart(position(record, 2), clock.now());
  const apart = await store.claim(record._id, 2);
  expect(apart).toMatchObject({ version: 3, crashes: 1 });
  expect(apart?.takenOver).toBeUndefined();
  await store.putBack(position(record, 3), record.stateAt, { lastError: 'away' });
  expect(await read(record)).toMatchObject({ dueAt: record.stateAt, lastError: 'away' });
  expect((await store.claim(record._id, 3))?.crashes).toBeUndefined();
});

test.each([60_000, -60_000, 5_001])(
  'a step of the clock by %d ms takes no claim over from a worker that renews it',
  async (stepMs) => {
    let monotonicMs = 0;
    let databaseMs = Date.now();
    const pass = (ms: number): void => {
      monotonicMs += ms;
      databaseMs += ms;
    };
    const local = { now: () => new Date(), monotonicMs: () => monotonicMs };
    const database = timedDatabase(stores.db, () => new Date(databaseMs));
    const newWorker = async () => {
      const its = new DatabaseClock(local);
      await its.measure(database);
      return { its, moves: new WorkerMoves({ db: stores.db, retention, clock: its }) };
    };
    const [worker, other] = [await newWorker(), await newWorker()];
    const record = await insert();
    expect(await worker.moves.claim(record._id, 0)).toBeDefined();

    databaseMs += stepMs;
    await other.its.measure(database);
    expect(await other.moves.claim(record._id, 1)).toBeUndefined();
    // The worker learns the time at its next measurement, and renews its claim by it.
    pass(10_000);
    await worker.its.measure(database);
    expect(await worker.moves.renew(position(record, 1))).toBe(true);
    pass(CLAIM_MS - 10_000 - 1);
    expect(await other.moves.claim(record._id, 1)).toBeUndefined();
    // Of a worker that died, the claim is taken over once it was expired for a claim's length.
    pass(CLAIM_MS);
    expect(await other.moves.claim(record._id, 1)).toBeDefined();
  },
);

test('what another one waits for is hastened once it is due, and never before its withdrawal', async () => {
  const soon = later(clock.now(), 1);
  const hour = later(clock.now(), 3_600_000);
  const hasten = async (record: SubmissionRecord): Promise<string[]> => {
    found = [];
    await reconcile.hasten(record as DueRecord);
    return found.map(({ requestId, dueAt }) => `${requestId} ${dueAt.getTime()}`);
  };
  // Of one that is not due, only a job says that it was accepted.
  expect(await hasten(await insert({ dueAt: soon }))).toEqual([]);
  const backsOff = await insert({ version: 1, attempts: 1, dueAt: soon });
  const fails = { waitsSince: clock.now(), backedOffMs: 1 };
  const failed = await insert({ version: 1, dueAt: soon, ...fails });
  const claimed = { waitsSince: clock.now(), claimedUntil: soon };
  const inWork = await insert({ version: 1, dueAt: soon, ...claimed });
  for (const record of [backsOff, failed, inWork]) {
    expect(await hasten(record)).toEqual([]);
    expect(await read(record)).toEqual(record);
  }
  // One that waits itself looks again at once.
  const inChain = await insert({ version: 1, waitsSince: clock.now(), dueAt: hour });
  expect(await hasten(inChain)).toEqual([`${inChain._id} 0`]);
  expect(await store.claim(inChain._id, 1)).toBeDefined();
  const isDue = await insert({ version: 1 });
  clock.advance(FIRST_DUE_MS);
  expect(await hasten(isDue)).toEqual([`${isDue._id} 0`]);
  // One that nobody claimed gets the time for its withdrawal, counted from now.
  const unclaimed = await insert({ dueAt: clock.now() });
  expect(await hasten(unclaimed)).toEqual([]);
  const seen = await read(unclaimed);
  expect(seen).toMatchObject({ firstSeenAt: clock.now(), version: 0 });
  expect(await hasten(seen)).toEqual([]);
  clock.advance(FIRST_SIGHT_GRACE_MS);
  expect(await hasten(await read(unclaimed))).toEqual([`${unclaimed._id} 0`]);
  // While writes are not durable, withdrawals are late.
  takesWrites = () => Promise.resolve(false);
  await reconcile.round();
  expect(await hasten(await read(unclaimed))).toEqual([]);
});
