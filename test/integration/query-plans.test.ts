/**
 * Repeated reads and those of partners use an index, by the plan of the store itself, on a
 * collection so large that a scan would be chosen.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { MongoClient, type Db, type Document } from 'mongodb';
import { lateBounce } from '../../internal/application/sandbox-endings.ts';
import { DAY_MS, systemClock as clock } from '../../internal/platform/process/clock.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import {
  DUE_PAGE,
  DueWork,
  readBacklog,
  readPartnerBacklog,
} from '../../internal/submission/due-work.ts';
import { EarlierRequests } from '../../internal/submission/earlier-requests.ts';
import { reportLateBounces } from '../../internal/submission/operator-moves.ts';
import {
  OutcomeReader,
  StatusReader,
  type Whose,
  type ListQuery,
} from '../../internal/submission/status-reader.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { newRecord, retention } from '../support/records.ts';
import { storesOfFile } from '../support/test-stores.ts';

const TIMEOUT_MS = 20_000;
const FINAL = 20_000;
const LATER = new Date(Date.now() + 1e9);

const stores = await storesOfFile({ indexes: true });
const client = new MongoClient(stores.mongodbUri, { monitorCommands: true });
const db: Db = client.db(stores.database);
/** What was read since the last look. */
const reads: Document[] = [];

const applicantOf = (n: number) => ({
  email: `person${n}@example.com`,
  ein: String(100_000_000 + n),
  businessName: 'Any',
});

beforeAll(async () => {
  const final = Array.from({ length: FINAL }, (_, index) => {
    const receivedAt = new Date(Date.now() - DAY_MS + (index * DAY_MS) / FINAL);
    const _id = newId('req', receivedAt);
    const given = { _id, receivedAt, version: 2, partnerId: 'busy', bodyUntil: LATER };
    const applicant = applicantOf(index);
    const { dueAt: _never, body: _body, ...record } = newRecord({ ...given, applicant });
    const asTest = index % 1_000 === 0 ? { test: true as const } : {};
    return { ...record, ...asTest, state: 'completed' as const, expiresAt: LATER };
  });
  Object.assign(final[7]!, { state: 'rejected', idempotencyDigest: 'other' });
  // More than a page, so that the oldest records of other partners are searched too.
  const waiting = Array.from({ length: DUE_PAGE + 1 }, () =>
    newRecord({ state: 'account_created', version: 1, dueAt: new Date(0) }),
  );
  for (let from = 0; from < FINAL; from += 5_000)
    await stores.requests.insertMany(final.slice(from, from + 5_000));
  await stores.requests.insertMany(waiting);
  client.on('commandStarted', ({ command, commandName }) => {
    if (['find', 'aggregate'].includes(commandName)) reads.push(command);
  });
});
afterAll(() => client.close());

/** Of MongoDB's plan that was chosen, and of that of PostgreSQL under FerretDB. */
function indexesIn(plan: unknown): string[] {
  if (typeof plan !== 'object' || plan === null) return [];
  return Object.entries(plan).flatMap(([key, value]) => {
    if (key === 'rejectedPlans' || key === 'IndexCosts') return [];
    return ['indexName', 'Index Name'].includes(key) ? [String(value)] : indexesIn(value);
  });
}

/** What is read of the indexes, in words. */
function boundsIn(plan: unknown): string[] {
  if (typeof plan !== 'object' || plan === null) return [];
  return Object.entries(plan).flatMap(([key, value]) => {
    if (key === 'rejectedPlans') return [];
    return key === 'indexBounds' ? [JSON.stringify(value)] : boundsIn(value);
  });
}

/** The indexes that each read since the last look uses, with the read. */
async function plansOf() {
  const plans = [];
  for (const { $db: _db, lsid: _session, $clusterTime: _time, ...read } of reads.splice(0)) {
    const { maxTimeMS, ...explain } = read;
    const explained = await stores.db.command({ explain, verbosity: 'queryPlanner' });
    const indexes = [...new Set(indexesIn(explained))];
    plans.push({ read, maxTimeMS, indexes, bounds: boundsIn(explained) });
  }
  return plans;
}

test('no read of a loop scans the collection', async () => {
  const due = new DueWork({ db, clock });
  for (const withoutPartners of [[], ['held']]) await due.read({ withoutPartners });
  await due.countUnknown(10);
  await due.removeBodies();
  await readBacklog(db, clock.now(), ['held']);
  await readPartnerBacklog(db);
  const plans = await plansOf();
  expect(plans.length).toBeGreaterThan(9);
  for (const { read, indexes } of plans) {
    const isServed = indexes.length > 0 && indexes.every((name) => name.startsWith('requests_'));
    expect({ read, indexes, isServed }).toEqual({ read, indexes, isServed: true });
  }
});

test('however many tests have bounced late, only those are read that have not yet', async () => {
  const tests = Array.from({ length: FINAL / 4 }, () =>
    newRecord({ test: true, state: 'undeliverable', applicant: { ein: lateBounce.ein } }),
  );
  await stores.requests.insertMany(tests);
  reads.length = 0;
  await reportLateBounces({ db, clock, retention });
  const plans = (await plansOf()).map(({ indexes, bounds }) => ({ indexes, bounds }));
  const bounds = [expect.stringMatching(/state.*completed/)];
  expect(plans).toEqual([{ indexes: ['requests_ein'], bounds }]);
});

test.each([
  ['live', {}],
  ['tests', { mode: { test: true as const } }],
])('who came first is asked by the indexes of applicants: %s', async (_, mode) => {
  const earlier = new EarlierRequests({ db, onHold: () => ['held'], ...mode });
  const askerOf = (n: number) => ({
    _id: newId('req', new Date()),
    partnerId: 'busy',
    applicant: applicantOf(n),
  });
  const byApplicant = ['requests_ein', 'requests_email'];
  reads.length = 0;
  const askers = [1, 2, 3].map((n) => askerOf(n));
  const answers = await Promise.all(askers.map((asker) => earlier.of(asker)));
  expect(answers).toEqual([undefined, undefined, undefined]);
  // All ask together.
  const together = await plansOf();
  expect(together).toHaveLength(1);
  expect(together[0]?.indexes.toSorted()).toEqual(byApplicant);
  // However many requests of an applicant were decided, the open ones alone are read.
  const [bounds] = together.map((plan) => plan.bounds);
  expect(bounds).not.toEqual([]);
  for (const bound of bounds ?? []) expect(bound).toMatch(/state.*recorded/);
  // One whose applicant many name asks alone.
  const many = { ...('mode' in mode ? mode.mode : {}), applicant: applicantOf(FINAL) };
  const open = Array.from({ length: 500 }, () => newRecord({ ...many, version: 1 }));
  // Were all open requests of one applicant, a scan of what is open would be right.
  const others = Array.from({ length: 5_000 }, (_none, index) =>
    newRecord({ ...many, version: 1, applicant: applicantOf(FINAL + 1 + index) }),
  );
  await stores.requests.insertMany([...open, ...others]);
  const [first] = open.map(({ _id }) => _id).toSorted();
  await earlier.of({ ...askerOf(FINAL), partnerId: 'demo', _id: first! });
  const [, alone] = await plansOf();
  expect(alone?.read['limit']).toBe(1);
  expect(alone?.indexes.some((name) => byApplicant.includes(name))).toBe(true);
  expect(alone?.indexes).not.toContain('_id_');
  // Whose applicant few name asks with the others once more, not each alone.
  const demo = [FINAL, 1, 2, 3].map((n) => ({ ...askerOf(n), partnerId: 'demo' }));
  const [found, ...none] = await Promise.all(demo.map((asker) => earlier.of(asker)));
  expect([found, ...none]).toMatchObject([{ partnerId: 'demo' }, undefined, undefined, undefined]);
  expect(reads.splice(0).map(({ limit }) => limit)).toEqual([500, 500]);
  await stores.requests.deleteMany({ _id: { $in: [...open, ...others].map(({ _id }) => _id) } });
});

/** A range of ids at a time. */
async function expectBounded(index: string): Promise<void> {
  const plans = await plansOf();
  expect(plans.length).toBeGreaterThan(0);
  for (const { read, maxTimeMS, indexes } of plans) {
    const { _id: range } = read['filter'] as Document;
    if (range !== undefined) expect(Object.keys(range as object)).toEqual(['$gte', '$lt']);
    expect({ read, indexes }).toEqual({ read, indexes: [index] });
    expect(maxTimeMS).toBeLessThan(TIMEOUT_MS);
  }
}

test.each<[name: string, index: string, query: ListQuery]>([
  ['the first page', 'requests_partner', { partnerId: 'busy' }],
  ['a state', 'requests_partner', { partnerId: 'busy', states: ['rejected'] }],
  ['times', 'requests_partner', { partnerId: 'busy', since: new Date(0), until: new Date() }],
  ['a partner without requests', 'requests_partner', { partnerId: 'quiet' }],
  ['tests', 'requests_tests_partner', { partnerId: 'busy', test: true }],
  ['a key', 'requests_idempotency', { partnerId: 'busy', idempotencyKey: 'a key' }],
])('a list reads by the index and ends in time: %s', async (_, index, query) => {
  const reader = new StatusReader({ db });
  const { next } = await reader.list(query, TIMEOUT_MS);
  if (next !== undefined) await reader.list({ ...query, before: next }, TIMEOUT_MS);
  await expectBounded(index);
});

test.each<[name: string, index: string, whose: Whose]>([
  ['live', 'requests_outcomes', { partnerId: 'busy' }],
  ['tests', 'requests_tests_outcomes', { partnerId: 'busy', test: true }],
])('outcomes are read by their index: %s', async (_, index, whose) => {
  const reader = new OutcomeReader({ db });
  const endsAt = performance.now() + TIMEOUT_MS;
  reads.length = 0;
  const { place } = await reader.after(whose, { ms: 0, id: '' }, endsAt);
  await reader.after(whose, place, endsAt);
  await reader.marks(whose, place.ms - DAY_MS, place, 100, endsAt);
  await reader.news(
    [
      { ...whose, ms: place.ms },
      { ...whose, partnerId: 'demo', ms: 0 },
    ],
    TIMEOUT_MS,
  );
  const plans = await plansOf();
  expect(plans.map(({ indexes }) => indexes)).toEqual(plans.map(() => [index]));
  expect(plans.length).toBeGreaterThan(3);
  for (const { maxTimeMS } of plans) expect(maxTimeMS).toBeLessThan(TIMEOUT_MS);
});

test('what operators search is read by ranges too', async () => {
  const support = new SupportQueries(db);
  await support.newest({ partner: 'busy' }, 50);
  await support.newest({ partner: 'busy', since: new Date(Date.now() - DAY_MS) }, 50);
  await expectBounded('requests_partner');
});

test('late bounces are compared with those of a day alone', async () => {
  const support = new SupportQueries(db);
  await support.bouncedWith('5.1.1', new Date(Date.now() - DAY_MS));
  await expectBounded('requests_bounced');
});
