/** Counts of what is turned away, written by several processes at once. */
import { expect, test } from '@jest/globals';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import type { Loop } from '../../internal/platform/process/loop.ts';
import {
  OVER_LIMIT_ADDRESSES,
  OverLimitRecorder,
  rateLimitedCollection,
  type TurnedAway,
} from '../../internal/submission/over-limit.ts';
import { storesOfFile } from '../support/test-stores.ts';

const PROCESSES = 4;
const ROUNDS = 10;
const ADDRESSES = Array.from({ length: 150 }, (_, index) => `192.0.2.${index}`);

const { db } = await storesOfFile();
/** Only the closing writes. */
const loops = { start: () => ({ stop: () => Promise.resolve() }) as unknown as Loop };

test('processes that count the same addresses in different orders lose no count', async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    const recorders = Array.from({ length: PROCESSES }, (_, process) => {
      const recorder = new OverLimitRecorder({
        db,
        windowMs: 60_000,
        retentionDays: 1,
        clock,
        loops,
      });
      const from = Math.floor((process * ADDRESSES.length) / PROCESSES);
      const all = [...ADDRESSES.slice(from), ...ADDRESSES.slice(0, from)];
      for (const address of process % 2 === 0 ? all : all.toReversed())
        recorder.add({ requestId: `req_${round}_${process}`, address });
      return recorder;
    });
    await Promise.all(recorders.map((recorder) => recorder.close()));
  }
  const found = await rateLimitedCollection(db).find().toArray();
  const counted = found.reduce((sum, { count }) => sum + count, 0);
  expect(counted).toBe(ROUNDS * PROCESSES * ADDRESSES.length);
}, 60_000);

test('a flooded partner hides neither another nor its own other key, and strangers hide none', async () => {
  await rateLimitedCollection(db).deleteMany({});
  const fixed = { ...clock, now: () => new Date('2026-11-28T12:00:00Z') };
  const recorder = new OverLimitRecorder({
    db,
    windowMs: 60_000,
    retentionDays: 1,
    clock: fixed,
    loops,
  });
  let id = 0;
  const addAll = (times: number, from: (index: number) => Partial<TurnedAway>): void => {
    for (let index = 0; index < times; index += 1)
      recorder.add({ requestId: `req_${(id += 1)}`, address: '192.0.2.1', ...from(index) });
  };
  const flood = (keyId: string) => (index: number) => ({
    address: `2001:db8:${index}::`,
    partnerId: 'flooded',
    keyId,
  });
  addAll(5_000, flood('one'));
  addAll(60, () => ({ partnerId: 'quiet', keyId: 'quiet' }));
  addAll(30, () => ({ partnerId: 'flooded', keyId: 'two' }));
  addAll(5_000, flood('one'));
  addAll(5_000, (index) => ({ address: `203.0.113.${index}`, status: 401 as const }));
  addAll(1_500, () => ({ partnerId: 'loud', keyId: 'loud' }));
  await recorder.close();
  const found = await rateLimitedCollection(db).find().toArray();
  const countOf = (keyId: string) => {
    const [row, ...more] = found.filter((one) => one.keyId === keyId);
    return [row?.count, row?.requestIds.length, more.length];
  };
  expect(countOf('quiet')).toEqual([60, 60, 0]);
  expect(countOf('two')).toEqual([30, 30, 0]);
  expect(countOf('loud')).toEqual([1_500, 1_000, 0]);
  expect(found.reduce((sum, { count }) => sum + count, 0)).toBe(id);
  const named = found.filter(({ address }) => address !== 'others');
  expect(named.length).toBeLessThan(2 * OVER_LIMIT_ADDRESSES + 10);
});
