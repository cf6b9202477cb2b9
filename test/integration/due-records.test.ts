/** Searches for due records on the real store: each finds the oldest page, and asks only for a part of a long backlog. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Collection, Document, MongoClient } from 'mongodb';
import { createMongo } from '../../internal/platform/mongo.ts';
import { DueRecords } from '../../internal/submission/due-records.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { makeIndexes, newTestClock } from '../support/processor-records.ts';
import { newRecord } from '../support/records.ts';
import { givingUp } from '../support/giving-up.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';

const PAGE = 100;
const RECORDS = 3_000;
const BETWEEN_MS = 100;
const MONTH_MS = 30 * 86_400_000;

const clock = newTestClock();
let stores: TestStores;
let stored: Collection<SubmissionRecord>;
let client: MongoClient;
let due: DueRecords;
/** The range of `dueAt` that each search so far asked for. */
let asked: Document[];

beforeAll(async () => {
  stores = await openTestStores();
  stored = await makeIndexes(stores);
});
afterAll(() => stores.close());
beforeEach(async () => {
  await stored.deleteMany({});
  client = createMongo(stores.mongodbUri, 'due records test', { monitorCommands: true });
  asked = [];
  client.on('commandStarted', ({ command }) => {
    if (command['find'] !== undefined) asked.push(command['filter'].dueAt);
  });
  due = new DueRecords(client.db(stores.database).collection(SUBMISSIONS), clock);
});
afterEach(() => client.close());

const dueSince = (milliseconds: number): SubmissionRecord =>
  newRecord({ state: 'account_created', version: 1, dueAt: new Date(clock.now().getTime() - milliseconds) });

async function fill(): Promise<string[]> {
  const records = Array.from({ length: RECORDS }, (_, index) => dueSince((RECORDS - index) * BETWEEN_MS));
  await stored.insertMany(records, { ordered: false });
  return records.map(({ _id }) => _id);
}

/** A page, whose records are then taken. */
async function takePage(): Promise<{ ids: string[]; more: boolean }> {
  const { records, more } = await due.find('account_created', PAGE);
  const ids = records.map(({ _id }) => _id);
  await stored.updateMany({ _id: { $in: ids } }, { $unset: { dueAt: true } });
  return { ids, more };
}

test('page after page gives every due record once, the oldest first', async () => {
  const expected = await fill();
  const found: string[] = [];
  for (let more = true; more;) {
    const page = await takePage();
    found.push(...page.ids);
    ({ more } = page);
  }
  expect(found).toEqual(expected);
});

test('a page comes in one answer, however long it is', async () => {
  await fill();
  const commands: string[] = [];
  client.on('commandStarted', ({ commandName }) => commands.push(commandName));
  clock.advance(RECORDS * BETWEEN_MS);
  let records: readonly unknown[] = [];
  while (records.length < RECORDS / 2) ({ records } = await due.find('account_created', RECORDS / 2));
  expect(new Set(commands)).toEqual(new Set(['find']));
});

test('no search asks for more than a small part of a long backlog', async () => {
  await fill();
  for (let page = 0; page < 5; page += 1) {
    const from = asked.length;
    await takePage();
    for (const range of asked.slice(from)) {
      const matching = await stored.countDocuments({ state: 'account_created', dueAt: range }, { limit: RECORDS });
      expect(matching).toBeLessThan(RECORDS / 5);
    }
    expect(asked.length - from).toBeLessThan(120);
  }
});

test('a store that gives up on a large part of a backlog is asked for less', async () => {
  const ids = await fill();
  due = new DueRecords(givingUp(client.db(stores.database).collection(SUBMISSIONS), PAGE * 1.2), clock);
  const { records, more } = await due.find('account_created', PAGE);
  expect(records.map(({ _id }) => _id)).toEqual(ids.slice(0, records.length));
  expect([records.length >= PAGE / 2, more]).toEqual([true, true]);
});

test('a page that nobody takes is found again, with what became due before it', async () => {
  const [oldest] = await fill();
  expect((await due.find('account_created', PAGE)).records[0]?._id).toBe(oldest);
  const older = dueSince(MONTH_MS);
  await stored.insertOne(older);
  const { records, more } = await due.find('account_created', PAGE);
  expect(records.slice(0, 2).map(({ _id }) => _id)).toEqual([older._id, oldest]);
  expect(more).toBe(true);
});

test('while nothing piles up, a round is one search', async () => {
  expect(await due.find('account_created', PAGE)).toEqual({ records: [], more: false });
  asked = [];
  const record = dueSince(-1_000);
  await stored.insertOne(record);
  clock.advance(2_500);
  const { records, more } = await due.find('account_created', PAGE);
  expect([records.map(({ _id }) => _id), more, asked.length]).toEqual([[record._id], false, 1]);
});

test('every search says that it asks only for records with a due date: the store finds its index by that', async () => {
  await due.find('recorded', PAGE);
  await due.countUnknown(PAGE);
  expect(asked.filter(({ $gt, $lte }) => $gt === undefined || $lte === undefined)).toEqual([]);
});
