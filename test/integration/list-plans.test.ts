/** A partner's list reads no more than ranges of its own records, and each read ends in time. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { MongoClient, MongoServerError, type Collection, type Document } from 'mongodb';
import { newId, timeOfId } from '../../internal/platform/stores/ids.ts';
import { ensureIndexes } from '../../internal/platform/stores/mongo-indexes.ts';
import { newestOf } from '../../internal/platform/stores/mongo-read.ts';
import { submissionIndexes, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { StatusReader, type ListQuery } from '../../internal/submission/status-reader.ts';
import { newRecord } from '../support/records.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';

const TIMEOUT_MS = 2_000;
const DAY_MS = 86_400_000;
/** Enough for the database to prefer an index. */
const RECORDS = 20_000;

let stores: TestStores;
let client: MongoClient;
let reader: StatusReader;
let support: SupportQueries;
/** All that the readers asked the database since the last look. */
const asked: Document[] = [];

const at = (ms: number, changes: Partial<SubmissionRecord> = {}): SubmissionRecord => {
  const receivedAt = new Date(ms);
  return newRecord({ _id: newId('req', receivedAt), receivedAt, state: 'completed', ...changes });
};
const allOf = (all: readonly SubmissionRecord[]): string[] =>
  all
    .map(({ _id }) => _id)
    .toSorted()
    .toReversed();

async function insert(all: readonly SubmissionRecord[]): Promise<void> {
  for (let from = 0; from < all.length; from += 2_000)
    await stores.requests.insertMany(all.slice(from, from + 2_000), { ordered: false });
}

async function wholeList(query: ListQuery): Promise<string[]> {
  const ids: string[] = [];
  for (let before: string | undefined; ;) {
    const page = await reader.list({ ...query, before }, TIMEOUT_MS);
    ids.push(...page.records.map(({ _id }) => _id));
    if (page.next === undefined) return ids;
    before = page.next;
  }
}

beforeAll(async () => {
  stores = await openTestStores();
  client = new MongoClient(stores.mongodbUri, { monitorCommands: true });
  client.on('commandStarted', ({ commandName, command }) => {
    if (commandName === 'find') asked.push(command);
  });
  const db = client.db(stores.database);
  await ensureIndexes(stores.db, submissionIndexes);
  reader = new StatusReader({ db });
  support = new SupportQueries(db);
  const now = Date.now();
  await insert(
    Array.from({ length: RECORDS }, (_, index) =>
      at(now - DAY_MS + index * (DAY_MS / RECORDS), {
        partnerId: 'busy',
        ...(index % 1_000 === 0 ? { test: true } : {}),
        ...(index === 7 ? { state: 'rejected', idempotencyDigest: 'other' } : {}),
      }),
    ),
  );
});
afterAll(async () => {
  await client.close();
  await stores.close();
});

describe('pages', () => {
  test.each([
    ['none', []],
    ['one that is years old', [-3_000 * DAY_MS]],
    ['gaps of months', [-400, -399.9, -120, -3, -0.1, 0].map((days) => days * DAY_MS)],
    ['a burst of an instant, long ago', Array.from({ length: 350 }, () => -30 * DAY_MS)],
    ['from a clock that is ahead', [60_000, 0, -60_000]],
  ])('hold all requests once, newest first: %s', async (name, ages) => {
    const partnerId = `pages ${name}`;
    const records = ages.map((age) => at(Date.now() + age, { partnerId }));
    if (records.length > 0) await insert(records);
    expect(await wholeList({ partnerId })).toEqual(allOf(records));
  });

  test('of one state hold all, also where it is rare', async () => {
    const found = await wholeList({ partnerId: 'busy', states: ['rejected'] });
    expect(found).toHaveLength(1);
  });

  test('of tests hold no live request', async () => {
    expect(await wholeList({ partnerId: 'busy', test: true })).toHaveLength(RECORDS / 1_000);
  });

  test('are whole where the database ends every read of a wide range', async () => {
    const records = Array.from({ length: 30 }, (_, index) =>
      at(Date.now() - index * 400, { partnerId: 'narrow' }),
    );
    await insert(records);
    const { found, next } = await newestOf(
      slowBeyond(5_000),
      { partnerId: 'narrow' },
      { size: 30, prefix: 'req', withinMs: TIMEOUT_MS },
    );
    expect(found.map(({ _id }) => _id)).toEqual(allOf(records));
    expect(next).toBe(found.at(-1)?._id);
  });

  test('say how far the search came where time runs out, and reject where it came nowhere', async () => {
    await insert([at(Date.now(), { partnerId: 'late' })]);
    const late = { partnerId: 'late' };
    const options = { size: 30, prefix: 'req', withinMs: 300 };
    const { found, next } = await newestOf(slowBeyond(1_000_000_000), late, options);
    expect(found).toHaveLength(1);
    expect(next).toMatch(/^req_/);
    await expect(newestOf(slowBeyond(-1), late, options)).rejects.toThrow('time');
  });
});

describe('the database', () => {
  test.each<[name: string, index: string, query: ListQuery]>([
    ['the first page', 'requests_partner', { partnerId: 'busy' }],
    ['a state', 'requests_partner', { partnerId: 'busy', states: ['rejected'] }],
    ['times', 'requests_partner', { partnerId: 'busy', since: new Date(0), until: new Date() }],
    ['a partner without requests', 'requests_partner', { partnerId: 'quiet' }],
    ['tests', 'requests_tests_partner', { partnerId: 'busy', test: true }],
    ['a key', 'requests_idempotency', { partnerId: 'busy', idempotencyKey: 'a key' }],
  ])('reads by the index and ends in time: %s', async (_, index, query) => {
    asked.length = 0;
    const { next } = await reader.list(query, TIMEOUT_MS);
    if (next !== undefined) await reader.list({ ...query, before: next }, TIMEOUT_MS);
    await expectBounded(index);
  });

  test('reads what operators search by ranges too', async () => {
    asked.length = 0;
    await support.newest({ partner: 'busy' }, 50);
    await support.newest({ partner: 'busy', since: new Date(Date.now() - DAY_MS) }, 50);
    await expectBounded('requests_partner');
  });
});

async function expectBounded(index: string): Promise<void> {
  expect(asked.length).toBeGreaterThan(0);
  for (const { find, filter, hint, sort, limit, maxTimeMS } of asked) {
    expect(maxTimeMS).toBeLessThan(TIMEOUT_MS);
    if (filter['_id'] !== undefined) expect(Object.keys(filter['_id'])).toEqual(['$gte', '$lt']);
    const explain = {
      find,
      filter,
      ...(hint && { hint }),
      ...(sort && { sort }),
      ...(limit && { limit }),
    };
    expect(indexesIn(await stores.db.command({ explain }))).toEqual(new Set([index]));
  }
}

/** Of MongoDB's plan that was chosen, and of that of PostgreSQL under FerretDB. */
function indexesIn(plan: unknown, found = new Set<string>()): Set<string> {
  if (typeof plan !== 'object' || plan === null) return found;
  for (const [key, value] of Object.entries(plan)) {
    if (key === 'Index Name' || (key === 'indexName' && 'stage' in plan)) found.add(String(value));
    else if (key === 'IndexDetails')
      for (const { indexName } of value as { indexName: string }[]) found.add(indexName);
    else if (key !== 'rejectedPlans' && key !== 'IndexCosts') indexesIn(value, found);
  }
  return found;
}

/** The collection, but the server ends each read whose range of ids spans more. */
function slowBeyond(spanMs: number): Collection<SubmissionRecord> {
  const time = (id: string): number => Number(timeOfId(id));
  return new Proxy(stores.requests, {
    get: (target, name) =>
      name !== 'find'
        ? Reflect.get(target, name)
        : (filter: { _id: { $gte: string; $lt: string } }, options: object) => {
            const span = Math.min(time(filter._id.$lt), Date.now()) - time(filter._id.$gte);
            if (span > spanMs) throw new MongoServerError({ message: 'time limit', code: 50 });
            return target.find(filter, options);
          },
  });
}
