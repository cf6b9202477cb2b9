import { expect, test } from '@jest/globals';
import type { SubmissionRecord } from '../submission/submission.ts';
import { OUTAGE_LINES_EVERY_MS, REFUSALS_PER_SECOND, REFUSAL_BURST } from './bounds.ts';
import { OutageLog, Refusals } from './refusals.ts';

test('a lasting flood is recorded at the bounded rate, and a quiet hour allows only one burst', () => {
  let [nowMs, recorded, counted] = [0, 0, 0];
  const refusals = new Refusals({
    clock: { now: () => new Date(0), monotonicMs: () => nowMs },
    metrics: { refusedDropped: { inc: () => {} } },
    commits: {
      record: () => {
        recorded += 1;
        return Promise.resolve({ kind: 'stored' });
      },
    },
    overLimit: { add: () => void (counted += 1) },
  });
  const refuse = (times: number): void => {
    const request = { address: '192.0.2.1', status: 401, requestId: 'req_1' } as const;
    for (let count = 0; count < times; count += 1)
      refusals.keep(request, () => ({}) as SubmissionRecord);
  };
  refuse(REFUSAL_BURST);
  for (let second = 0; second < 10; second += 1) {
    nowMs += 1_000;
    refuse(1_000);
  }
  const atRate = 10 * REFUSALS_PER_SECOND;
  expect([recorded, counted]).toEqual([REFUSAL_BURST + atRate, 10_000 - atRate]);
  nowMs += 3_600_000;
  refuse(1_000);
  expect(recorded).toBe(2 * REFUSAL_BURST + atRate);
});

test('an outage logs one line at its start and one at its end, at most every ten seconds', () => {
  let now = 0;
  const lines: string[] = [];
  const say = (level: string) => (fields: unknown, text?: string) =>
    void lines.push(`${level} ${text} ${JSON.stringify(fields)}`);
  const log = new OutageLog({
    clock: { now: () => new Date(now), monotonicMs: () => now },
    log: { warn: say('warn'), info: say('info') },
  });
  const see = (...kinds: ('stored' | 'not_stored' | 'in_doubt' | 'unknown')[]): void =>
    kinds.forEach((kind) => {
      log.note(kind === 'stored' ? { kind } : { kind, reason: 'no_answer' });
    });
  const away = (result: string): string =>
    `warn mongodb is away, slow or refuses: requests are not recorded {"result":"${result}","reason":"no_answer"}`;
  const back = (seconds: number): string =>
    `info mongodb is back: requests are recorded again {"seconds":${seconds}}`;

  see('stored', 'not_stored', 'in_doubt', 'unknown');
  now += OUTAGE_LINES_EVERY_MS;
  see('not_stored', 'stored', 'stored');
  expect(lines).toEqual([away('not_stored'), back(10)]);
  see('in_doubt', 'stored', 'in_doubt', 'stored', 'in_doubt');
  expect(lines.slice(2)).toEqual([away('in_doubt'), back(0)]);
  now += OUTAGE_LINES_EVERY_MS;
  see('not_stored');
  expect(lines.slice(4)).toEqual([away('not_stored')]);
});
