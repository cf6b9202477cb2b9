/** Refused requests are recorded up to a rate and counted beyond it. */
import { expect, test } from '@jest/globals';
import type { SubmissionRecord } from '../submission/submission.ts';
import { REFUSALS_PER_SECOND, REFUSAL_BURST } from './limits.ts';
import { Refusals } from './refusals.ts';

function newRefusals(kind: 'stored' | 'in_doubt' = 'stored') {
  let [nowMs, recorded, dropped] = [0, 0, 0];
  const counted: string[] = [];
  const refusals = new Refusals({
    clock: { now: () => new Date(0), monotonicMs: () => nowMs },
    metrics: { refusedDropped: { inc: () => (dropped += 1) } },
    record: () => {
      recorded += 1;
      return Promise.resolve(kind === 'stored' ? { kind } : { kind, reason: 'no_answer' });
    },
    countRefused: (...what) => void counted.push(what.join(' ')),
  });
  return {
    refuse: (times: number) => {
      const request = { address: '192.0.2.1', status: 401, requestId: 'req_1' } as const;
      for (let count = 0; count < times; count += 1)
        refusals.keep(request, () => ({}) as SubmissionRecord);
    },
    pass: (milliseconds: number) => (nowMs += milliseconds),
    counts: () => [recorded, counted.length],
    counted,
    dropped: () => dropped,
  };
}

test('refused requests that the database does not take are counted', async () => {
  const { refuse, counts, dropped } = newRefusals('in_doubt');
  refuse(3);
  await Promise.resolve();
  expect([counts(), dropped()]).toEqual([[3, 3], 3]);
});

test('a burst is recorded up to its bound, and the rest is counted', () => {
  const { refuse, counts, counted } = newRefusals();
  refuse(REFUSAL_BURST);
  expect(counts()).toEqual([REFUSAL_BURST, 0]);
  refuse(5_000);
  expect(counts()).toEqual([REFUSAL_BURST, 5_000]);
  expect(new Set(counted)).toEqual(new Set(['192.0.2.1 401 req_1']));
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
