/**
 * Every repeated read uses an index, by the plan of the store itself, on a collection so large that
 * a scan would be chosen.
 */
import { expect, test } from '@jest/globals';
import { MongoClient, type Document } from 'mongodb';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import {
  DUE_PAGE,
  DueWork,
  readBacklog,
  readPartnerBacklog,
} from '../../internal/submission/due-work.ts';
import { newRecord } from '../support/records.ts';
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

test('no read of a loop scans the collection', async () => {
  const client = new MongoClient(stores.mongodbUri, { monitorCommands: true });
  try {
    const requests = stores.requests;
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

    const reads: Document[] = [];
    client.on('commandStarted', ({ command, commandName }) => {
      if (['find', 'aggregate'].includes(commandName)) reads.push(command);
    });
    const db = client.db(stores.database);
    const due = new DueWork({ db, clock });
    for (const withoutPartners of [[], ['held']]) await due.read({ withoutPartners });
    await due.countUnknown(10);
    await due.removeBodies();
    await readBacklog(db, clock.now(), ['held']);
    await readPartnerBacklog(db);

    expect(reads.length).toBeGreaterThan(9);
    for (const { $db: _db, lsid: _session, $clusterTime: _time, ...read } of reads) {
      const explained = await stores.db.command({ explain: read, verbosity: 'queryPlanner' });
      const indexes = indexesIn(explained);
      const isServed = indexes.length > 0 && indexes.every((name) => name.startsWith('requests_'));
      expect({ read, indexes, isServed }).toEqual({ read, indexes, isServed: true });
    }
  } finally {
    await client.close();
  }
});
