/**
 * Withdrawals on a database that is slow: on the model, because no test can make the real one slow
 * by size.
 */
import { expect, jest, test } from '@jest/globals';
import { systemClock } from '../../internal/platform/clock.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import { newRecord } from '../support/records.ts';
import { databaseOf, driverOf } from './driver.ts';
import { MemoryCollection } from './memory-collection.ts';
import { silent } from './world.ts';

const PENDING = 200;
const IN_TIME = 130;
/** Half as many are enough. */
const MOST_WRITES = 8;
/** More than one write of them. */
const IN_AN_OUTAGE = 1_200;

const open = (
  store: ReturnType<typeof driverOf<SubmissionRecord>>,
  settled: () => void,
): Withdrawals =>
  new Withdrawals({
    db: databaseOf({ [SUBMISSIONS]: store as never }),
    retentionDays: 7,
    clock: systemClock,
    log: silent,
    metrics: {
      withdrawalsPending: { set: () => {} },
      withdrawals: { inc: ({ result }) => void (result === 'withdrawn' && settled()) },
    },
  });

test('a database that finishes only small writes in time is asked for smaller ones', async () => {
  let [items, writes, settled] = [0, 0, 0];
  const slow = driverOf<SubmissionRecord>(
    new MemoryCollection(),
    (execute) => {
      items = 0;
      writes += 1;
      if (writes > MOST_WRITES) withdrawals.stop();
      return Promise.resolve().then(execute);
    },
    {
      tamper: (sent) => {
        items += 1;
        if (items > IN_TIME) throw new Error('no answer in time');
        return sent;
      },
    },
  );
  const withdrawals = open(slow, () => (settled += 1));
  for (let index = 0; index < PENDING; index += 1) withdrawals.add(newRecord());
  await withdrawals.whenSettled();
  expect(settled).toBe(PENDING);
});

test('in an outage what was never tried waits for no pause', async () => {
  jest.useFakeTimers();
  let writes = 0;
  const away = driverOf<SubmissionRecord>(new MemoryCollection(), () => {
    writes += 1;
    return Promise.reject(new Error('away'));
  });
  const withdrawals = open(away, () => {});
  try {
    for (let index = 0; index < IN_AN_OUTAGE; index += 1) withdrawals.add(newRecord());
    // No timer runs here.
    for (let turn = 0; turn < 20_000; turn += 1) await Promise.resolve();
    // Each write is half as large as the one before, down to the least.
    expect(writes).toBeGreaterThan(10);
  } finally {
    withdrawals.stop();
    jest.useRealTimers();
  }
});
