/** Walks over all matching records page by page, also on a store that reads all for each page. */
import { beforeAll, expect, test } from '@jest/globals';
import { MongoServerError, type Collection, type Filter } from 'mongodb';
import { DAY_MS } from '../../internal/platform/process/clock.ts';
import { firstIdAt } from '../../internal/platform/stores/ids.ts';
import { pagesOf } from '../../internal/platform/stores/mongo-read.ts';
import { storesOfFile } from '../support/test-stores.ts';

interface Walked {
  readonly _id: string;
  readonly odd: boolean;
}

const SIZE = 10;
const odd = { odd: true };
const now = Date.now();

const stores = await storesOfFile();
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
const expected = records.filter((record) => record.odd).map(({ _id }) => _id);

beforeAll(async () => {
  await walked.insertMany(records.toReversed());
});

/**
 * Walks a store that refuses to sort more than `most` documents, as FerretDB does with millions.
 */
async function walk(
  most: number,
  range: { readonly after?: string | undefined; readonly until?: string | undefined } = {},
): Promise<string[]> {
  const find = (filter: Filter<Walked>) => {
    const cursor = walked.find(filter);
    const read = cursor.toArray.bind(cursor);
    cursor.toArray = async () => {
      if ((await walked.countDocuments(filter)) <= most) return read();
      throw new MongoServerError({ message: 'operation exceeded time limit', code: 50 });
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
])('finds every record once and in order if a read may sort %s', async (_, most) => {
  expect(await walk(most)).toEqual(expected);
  expect(await walk(most, { after: expected[150] })).toEqual(expected.slice(151));
});

test('reads from one time up to another', async () => {
  const [after, until] = [30 * DAY_MS, 3_600_000 - 20_000].map((ago) =>
    firstIdAt('req', new Date(now - ago)),
  );
  const between = expected.filter((id) => id > after! && id < until!);
  expect(between.length).toBeGreaterThan(60);
  expect(await walk(60, { after, until })).toEqual(between);
});

test('fails with the error of the store if even the shortest read takes too long', async () => {
  await expect(walk(-1)).rejects.toMatchObject({ code: 50 });
});
