/** Withdrawals in an outage, on the model of the database. */
import { expect, jest, test } from '@jest/globals';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import { newRecord } from '../support/records.ts';
import { databaseOf, driverOf } from './driver.ts';
import { MemoryCollection } from './memory-collection.ts';
import { silent } from './world.ts';

const PENDING = 1_200;

test('in an outage an untried withdrawal does not wait for a pause', async () => {
  jest.useFakeTimers();
  let writes = 0;
  const away = driverOf<SubmissionRecord>(new MemoryCollection(), () => {
    writes += 1;
    return Promise.reject(new Error('away'));
  });
  const withdrawals = new Withdrawals({
    db: databaseOf({ [SUBMISSIONS]: away }),
    retentionDays: 7,
    clock: systemClock,
    log: silent,
    metrics: { withdrawalsPending: { set: () => {} }, withdrawals: { inc: () => {} } },
  });
  try {
    for (let index = 0; index < PENDING; index += 1) withdrawals.add(newRecord());
    // Fake timers stand still, so only writes without a pause before them happen.
    for (let turn = 0; turn < 20_000; turn += 1) await Promise.resolve();
    // Each write is half as large as the one before.
    expect(writes).toBeGreaterThan(10);
  } finally {
    withdrawals.stop();
    jest.useRealTimers();
  }
});
