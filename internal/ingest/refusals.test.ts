/** Refused requests are recorded up to a rate and counted beyond it. */
import { expect, test } from '@jest/globals';
import type { SubmissionRecord } from '../submission/submission.ts';
import { REFUSALS_PER_SECOND, REFUSAL_BURST } from './limits.ts';
import { Refusals } from './refusals.ts';

function newRefusals(kind: 'stored' | 'in_doubt' = 'stored') {
  let [nowMs, recorded, counted, dropped] = [0, 0, 0, 0];
  const refusals = new Refusals({
    clock: { now: () => new Date(0), monotonicMs: () => nowMs },
    metrics: { refusedDropped: { inc: () => (dropped += 1) } },
    commits: {
      record: () => {
        recorded += 1;
        return Promise.resolve(kind === 'stored' ? { kind } : { kind, reason: 'no_answer' });
      },
    },
    overLimit: { add: () => void (counted += 1) },
  });
  return {
    refuse: (times: number) => {
      const request = { address: '192.0.2.1', status: 401, requestId: 'req_1' } as const;
      for (let count = 0; count < times; count += 1)
        refusals.keep(request, () => ({}) as SubmissionRecord);
    },
    pass: (milliseconds: number) => (nowMs += milliseconds),
    counts: () => [recorded, counted],
    dropped: () => dropped,
  };
}

test('refused requests that the database does not take are counted', async () => {
  const { refuse, counts, dropped } = newRefusals('in_doubt');
  refuse(3);
  await Promise.resolve();
  expect([counts(), dropped()]).toEqual([[3, 3], 3]);
});

test('a lasting flood is recorded at the bounded rate, and a quiet hour allows only one burst', () => {
  const { refuse, pass, counts } = newRefusals();
  refuse(REFUSAL_BURST);
  for (let second = 0; second < 10; second += 1) {
    pass(1_000);
    refuse(1_000);
  }
  const recorded = REFUSAL_BURST + 10 * REFUSALS_PER_SECOND;
  expect(counts()).toEqual([recorded, 10_000 - 10 * REFUSALS_PER_SECOND]);
  pass(3_600_000);
  refuse(1_000);
  expect(counts()[0]).toBe(recorded + REFUSAL_BURST);
});
