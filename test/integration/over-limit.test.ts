/** Counts of what is turned away, written by several processes at once. */
import { expect, test } from '@jest/globals';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import type { Loop } from '../../internal/platform/process/loop.ts';
import { OverLimitRecorder, rateLimitedCollection } from '../../internal/submission/over-limit.ts';
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
