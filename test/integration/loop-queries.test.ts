/**
 * Every repeated read uses an index, by the plan of the store itself, on a collection so large that
 * a scan would be chosen.
 */
import { afterAll, expect, test } from '@jest/globals';
import { MongoClient, type Document } from 'mongodb';
import { lateBounce } from '../../internal/application/sandbox-endings.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import {
  DUE_PAGE,
  DueWork,
  readBacklog,
  readPartnerBacklog,
} from '../../internal/submission/due-work.ts';
import { reportLateBounces } from '../../internal/submission/operator-moves.ts';
import { newRecord, retention } from '../support/records.ts';
import { storesOfFile } from '../support/test-stores.ts';

const stores = await storesOfFile({ indexes: true });
const FINAL = 20_000;
const LATER = new Date(Date.now() + 1e9);

/** The indexes of the chosen plan; DocumentDB also lists other plans. */
function indexesIn(plan: unknown): string[] {
  if (typeof plan !== 'object' || plan === null) return [];
  return Object.entries(plan).flatMap(([key, value]) => {
    if (key === 'IndexCosts' || key === 'rejectedPlans') return [];
    return key === 'indexName' ? [String(value)] : indexesIn(value);
  });
}

const client = new MongoClient(stores.mongodbUri, { monitorCommands: true });
afterAll(() => client.close());
const { requests } = stores;
const db = client.db(stores.database);
let reads: Document[] = [];
client.on('commandStarted', ({ command, commandName }) => {
  if (['find', 'aggregate'].includes(commandName)) reads.push(command);
});

/** The reads of `read`, each with the indexes of its plan. */
async function plansOf(read: () => Promise<unknown>) {
  reads = [];
  await read();
  return Promise.all(
    reads.map(async ({ $db: _db, lsid: _session, $clusterTime: _time, ...command }) => {
      const explained = await stores.db.command({ explain: command, verbosity: 'queryPlanner' });
      return { command, indexes: indexesIn(explained) };
    }),
  );
}

test('no read of a loop scans the collection', async () => {
  const final = Array.from({ length: FINAL }, () => {
    const { dueAt: _never, body: _body, ...record } = newRecord({ version: 2, bodyUntil: LATER });
    return { ...record, state: 'completed' as const, expiresAt: LATER };
  });
  // More than a page, so that the oldest records of other partners are searched too.
  const waiting = Array.from({ length: DUE_PAGE + 1 }, () =>
    newRecord({ state: 'account_created', version: 1, dueAt: new Date(0) }),
  );
  for (const some of [final.slice(0, FINAL / 2), final.slice(FINAL / 2), waiting])
    await requests.insertMany(some);

  const due = new DueWork({ db, clock });
  const plans = await plansOf(async () => {
    for (const withoutPartners of [[], ['held']]) await due.read({ withoutPartners });
    await due.countUnknown(10);
    await due.removeBodies();
    await readBacklog(db, clock.now(), ['held']);
    await readPartnerBacklog(db);
  });
  expect(plans.length).toBeGreaterThan(9);
  for (const { command, indexes } of plans) {
    const isServed = indexes.length > 0 && indexes.every((name) => name.startsWith('requests_'));
    expect({ command, indexes, isServed }).toEqual({ command, indexes, isServed: true });
  }
});

test('however many tests have bounced late, only those are read that have not yet', async () => {
  const tests = Array.from({ length: FINAL / 4 }, () =>
    newRecord({ test: true, state: 'undeliverable', applicant: { ein: lateBounce.ein } }),
  );
  await requests.insertMany(tests);
  const plans = await plansOf(() => reportLateBounces({ db, clock, retention }));
  expect(plans.map(({ indexes }) => indexes)).toEqual([['requests_tests_late_bounce']]);
});
