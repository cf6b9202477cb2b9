/** Claims without an answer, on the model of the database. */
import { expect, test } from '@jest/globals';
import { MongoNetworkError } from 'mongodb';
import type { Work } from '../../internal/processor/line.ts';
import { Reconcile } from '../../internal/processor/reconcile.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { newRecord, newTestClock, retention } from '../support/records.ts';
import { databaseOf, driverOf } from './driver.ts';
import { MemoryCollection } from './memory-collection.ts';

test.each([1, 2])(
  'what a command without an answer claimed is due at once, and counts as no crash: call %i',
  async (unanswered) => {
    const clock = newTestClock();
    const requests = new MemoryCollection();
    const records = ['req_1', 'req_2', 'req_3'].map((_id) => newRecord({ _id }));
    for (const record of records) requests.insert({ ...record }, { durable: true });
    let calls = 0;
    const driver = driverOf<SubmissionRecord>(requests, async (execute) => {
      const answer = execute();
      calls += 1;
      if (calls === unanswered) throw new MongoNetworkError('no answer');
      return Promise.resolve(answer);
    });
    const db = databaseOf({ [SUBMISSIONS]: driver });
    const [one, other] = [1, 2].map(() => new WorkerMoves({ db, retention, clock }));
    const claims = records.slice(1).map(({ _id }) => one!.claim(_id, 0));
    const claimed = await Promise.allSettled(claims);
    expect(claimed.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    // Another process' claim stays.
    expect(await other!.claim('req_1', 0)).toMatchObject({ version: 1 });
    expect(await other!.claim('req_2', 1)).toBeUndefined();
    const found: Work[] = [];
    const reconcile = new Reconcile({
      due: new DueWork({ db, clock }),
      line: {
        put: (works) => void found.push(...works),
        isLow: () => false,
        hasten: () => false,
        busy: false,
      },
      store: one!,
      holds: { partners: () => [] },
      clock,
    });
    await reconcile.round();
    expect(found.map(({ requestId }) => requestId)).toEqual(['req_2', 'req_3']);
    for (const { requestId, version } of found) {
      const record = await other!.claim(requestId, version);
      expect(record).toMatchObject({ version: 2 });
      expect(record?.crashes).toBeUndefined();
    }
  },
);
