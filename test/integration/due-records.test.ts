/** Searches for due records and for the head of the line of mails, on the real store. */
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Collection } from 'mongodb';
import { DueRecords } from '../../internal/submission/due-records.ts';
import { LINE_OF_PARTNER, LINE_PAGE } from '../../internal/submission/limits.ts';
import { MailQueue } from '../../internal/submission/mail-queue.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { makeIndexes, newTestClock } from '../support/processor-records.ts';
import { newRecord } from '../support/records.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';

const PAGE = 100;
const BETWEEN_MS = 100;

const clock = newTestClock();
let stores: TestStores;
let stored: Collection<SubmissionRecord>;
let due: DueRecords;
let line: MailQueue;

beforeAll(async () => {
  stores = await openTestStores();
  stored = await makeIndexes(stores);
});
afterAll(() => stores.close());
beforeEach(async () => {
  await stored.deleteMany({});
  due = new DueRecords(stored, clock);
  line = new MailQueue({ db: stores.db, clock });
});

const before = (milliseconds: number): Date => new Date(clock.now().getTime() - milliseconds);

/** Records of which the first is due for the longest time; their ids. */
async function fill(count: number, more: Partial<SubmissionRecord>): Promise<string[]> {
  const records = Array.from({ length: count }, (_, index) =>
    newRecord({ version: 1, dueAt: before((count - index) * BETWEEN_MS), ...more }),
  );
  await stored.insertMany(records, { ordered: false });
  return records.map(({ _id }) => _id);
}
const ofPartner = (
  partnerId: string,
  email = `${partnerId}@${partnerId}.example`,
): Partial<SubmissionRecord> => ({
  state: 'account_created',
  partnerId,
  applicant: { email },
});

test('page after page gives every due record once, the oldest first', async () => {
  const expected = await fill(5 * PAGE, { state: 'recorded' });
  await fill(1, { state: 'recorded', dueAt: before(-1_000) });
  await fill(1, { state: 'account_created' });
  const found: string[] = [];
  for (let page = 0; page < 6; page += 1) {
    const ids = (await due.find(PAGE, [])).map(({ _id }) => _id);
    await stored.updateMany({ _id: { $in: ids } }, { $unset: { dueAt: true } });
    found.push(...ids);
  }
  expect(found).toEqual(expected);
});

test('what partners on hold have sent is not found, however much it is', async () => {
  await fill(2 * PAGE, { state: 'recorded', partnerId: 'held' });
  const [other] = await fill(1, { state: 'recorded', partnerId: 'other' });
  expect((await due.find(PAGE, ['held'])).map(({ _id }) => _id)).toEqual([other]);
});

test('the head of a short line is all of it, the oldest first', async () => {
  const acme = await fill(3, ofPartner('acme'));
  await fill(1, { ...ofPartner('acme'), dueAt: before(-1_000) });
  await fill(2, ofPartner('held'));
  const head = await line.head({ withoutPartners: ['held'] });
  expect(head.more).toBe(false);
  expect(head.mails.map(({ requestId }) => requestId)).toEqual(acme);
  expect(head.mails[0]).toMatchObject({
    version: 1,
    partnerId: 'acme',
    domain: 'acme.example',
    urgent: false,
  });
});

test('in a long line the records of one partner hide no other partner', async () => {
  await fill(LINE_PAGE + 200, ofPartner('bulk'));
  await fill(2 * LINE_OF_PARTNER, ofPartner('held'));
  const small = await fill(3, ofPartner('small'));
  const last = await fill(1, ofPartner('zebra'));
  const head = await line.head({ withoutPartners: ['held'] });
  expect(head.more).toBe(true);
  const found = Map.groupBy(head.mails, ({ partnerId }) => partnerId);
  expect(found.get('bulk')).toHaveLength(LINE_PAGE);
  expect(found.get('small')?.map(({ requestId }) => requestId)).toEqual(small);
  expect(found.get('zebra')?.map(({ requestId }) => requestId)).toEqual(last);
  expect(found.has('held')).toBe(false);
});
