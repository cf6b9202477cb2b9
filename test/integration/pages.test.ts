/**
 * Lists and walks read page by page, also on a store that ends each read of a wide range or of many
 * documents.
 */
import { expect, test } from '@jest/globals';
import { MongoServerError, type Collection, type Filter } from 'mongodb';
import { DAY_MS } from '../../internal/platform/process/clock.ts';
import { firstIdAt, newId, timeOfId } from '../../internal/platform/stores/ids.ts';
import { newestOf, pagesOf } from '../../internal/platform/stores/mongo-read.ts';
import { StatusReader } from '../../internal/submission/status-reader.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';
import { newRecord } from '../support/records.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';

const TIMEOUT_MS = 20_000;
const stores = await storesOfFile({ indexes: true });

/** Stores a record of the partner for each age; returns their ids, newest first. */
async function stored(partnerId: string, agesMs: readonly number[]): Promise<string[]> {
  const records = agesMs.map((ageMs) => {
    const receivedAt = new Date(Date.now() - ageMs);
    return newRecord({ _id: newId('req', receivedAt), receivedAt, partnerId, state: 'completed' });
  });
  if (records.length > 0) await stores.requests.insertMany(records);
  return records
    .map(({ _id }) => _id)
    .toSorted()
    .toReversed();
}

test.each([
  ['none', []],
  ['one that is years old', [3_000 * DAY_MS]],
  ['gaps of months', [400, 399.9, 120, 3, 0.1, 0].map((days) => days * DAY_MS)],
  ['a burst of an instant, long ago', Array.from({ length: 350 }, () => 30 * DAY_MS)],
  ['from a clock that is ahead', [-60_000, 0, 60_000]],
])('the pages of a list hold all requests once, newest first: %s', async (name, agesMs) => {
  const partnerId = `pages ${name}`;
  const expected = await stored(partnerId, agesMs);
  const reader = new StatusReader({ db: stores.db });
  const ids: string[] = [];
  for (let before: string | undefined; ;) {
    const page = await reader.list({ partnerId, before }, TIMEOUT_MS);
    ids.push(...page.records.map(({ _id }) => _id));
    before = page.next;
    if (before === undefined) break;
  }
  expect(ids).toEqual(expected);
});

const tooLong = (): Error => new MongoServerError({ message: 'time limit', code: 50 });

/** The collection, but the server ends each read whose range of ids spans more. */
function slowBeyond(spanMs: number): Collection<SubmissionRecord> {
  const time = (id: string): number => Number(timeOfId(id));
  return new Proxy(stores.requests, {
    get: (target, name) =>
      name !== 'find'
        ? Reflect.get(target, name)
        : (filter: { _id: { $gte: string; $lt: string } }, options: object) => {
            const span = Math.min(time(filter._id.$lt), Date.now()) - time(filter._id.$gte);
            if (span > spanMs) throw tooLong();
            return target.find(filter, options);
          },
  });
}

test('a page is whole where the database ends every read of a wide range', async () => {
  const agesMs = Array.from({ length: 30 }, (_, index) => index * 400);
  const expected = await stored('narrow', agesMs);
  const options = { size: 30, prefix: 'req', withinMs: TIMEOUT_MS };
  const { found, next } = await newestOf(slowBeyond(5_000), { partnerId: 'narrow' }, options);
  expect(found.map(({ _id }) => _id)).toEqual(expected);
  expect(next).toBe(found.at(-1)?._id);
});

test('a page says how far the search came where time runs out, and rejects where it came nowhere', async () => {
  await stored('late', [0]);
  const options = { size: 30, prefix: 'req', withinMs: 300 };
  const late = { partnerId: 'late' };
  // A full machine may be too slow for the first part.
  const { found, next } = await eventually('a part of the page', () =>
    newestOf(slowBeyond(1_000_000_000), late, options),
  );
  expect(found).toHaveLength(1);
  expect(next).toMatch(/^req_/);
  await expect(newestOf(slowBeyond(-1), late, options)).rejects.toThrow('time');
});

interface Walked {
  readonly _id: string;
  readonly odd: boolean;
}

const SIZE = 10;
const odd = { odd: true };
const now = Date.now();
const walked = stores.db.collection<Walked>('walked');

/** Records at one instant, or `everyMs` apart. */
function burst(count: number, fromMs: number, everyMs: number): Walked[] {
  return Array.from({ length: count }, (_, index) => ({
    _id: `${firstIdAt('req', new Date(fromMs + index * everyMs)).slice(0, -3)}${String(index).padStart(3, '0')}`,
    odd: index % 2 === 1,
  }));
}

const records = [
  ...burst(200, now - 400 * DAY_MS, 1_000),
  ...burst(50, now - 30 * DAY_MS, 0),
  ...burst(1, now - 29 * DAY_MS, 0),
  ...burst(300, now - 3_600_000, 200),
  // Records of a clock that is ahead.
  ...burst(30, now + DAY_MS, 1_000),
];
await walked.insertMany(records.toReversed());
const expected = records.filter((record) => record.odd).map(({ _id }) => _id);

/** Walks a store that refuses to sort more than `most` documents, as FerretDB does with millions. */
async function walk(
  most: number,
  range: { readonly after?: string | undefined; readonly until?: string | undefined } = {},
): Promise<string[]> {
  const find = (filter: Filter<Walked>) => {
    const cursor = walked.find(filter);
    const read = cursor.toArray.bind(cursor);
    cursor.toArray = async () => {
      if ((await walked.countDocuments(filter)) <= most) return read();
      throw tooLong();
    };
    return cursor;
  };
  const store = { find, findOne: walked.findOne.bind(walked) } as unknown as Collection<Walked>;
  const ids: string[] = [];
  for await (const page of pagesOf(store, odd, { size: SIZE, ...range })) {
    expect(page.length).toBeLessThanOrEqual(SIZE);
    ids.push(...page.map(({ _id }) => _id));
  }
  return ids;
}

test.each([
  ['all that match', 1_000],
  ['some pages', 60],
])('a walk finds every record once and in order if a read may sort %s', async (_, most) => {
  expect(await walk(most)).toEqual(expected);
  expect(await walk(most, { after: expected[150] })).toEqual(expected.slice(151));
  const [after, until] = [30 * DAY_MS, 3_600_000 - 20_000].map((ago) =>
    firstIdAt('req', new Date(now - ago)),
  );
  const between = expected.filter((id) => id > after! && id < until!);
  expect(between.length).toBeGreaterThan(60);
  expect(await walk(most, { after, until })).toEqual(between);
});

test('a walk fails with the error of the store if even the shortest read takes too long', async () => {
  await expect(walk(-1)).rejects.toMatchObject({ code: 50 });
});
