import { expect, test } from '@jest/globals';
import { HINTS_PER_JOB, SPREAD, hintFor, hintsOf, jobId, jobOptions, jobsFor, type Hint } from './job.ts';

test('a hint holds id, version and trace context of the record, and nothing else of it', () => {
  const record = { _id: 'req_1', version: 3, traceparent: '00-a-b-01', body: 'secret', remoteIp: '10.0.0.1' };
  expect(hintFor(record)).toEqual({ requestId: 'req_1', version: 3, traceparent: '00-a-b-01' });
  expect(hintFor({ _id: 'req_1', version: 0 })).toEqual({ requestId: 'req_1', version: 0 });
});

test('each version has a job id of its own, legal for BullMQ', () => {
  expect(jobId({ requestId: 'req_1', version: 3 })).toBe('req_1-3');
  expect(jobId({ requestId: 'req_1', version: 3 })).not.toContain(':');
});

test('jobs leave nothing behind that could block the next add', () => {
  expect(jobOptions).toEqual({ attempts: 1, removeOnComplete: true, removeOnFail: true });
});

const hints = (count: number): Hint[] =>
  Array.from({ length: count }, (_, index) => ({ requestId: `req_${index}`, version: index % 3 }));

test('a lone hint is a job of its own, with the id of its version', () => {
  expect(jobsFor(hints(1))).toEqual([{ data: { requestId: 'req_0', version: 0 }, jobId: 'req_0-0' }]);
});

test('a lone hint that is sent again has no id: what is left of a lost job cannot block it', () => {
  expect(jobsFor(hints(1), true)).toEqual([{ data: { requestId: 'req_0', version: 0 } }]);
});

test.each([
  [0, 0],
  [1, 1],
  [SPREAD, SPREAD],
  [SPREAD + 1, 9],
  [50, 13],
  [SPREAD * HINTS_PER_JOB, SPREAD],
  [SPREAD * HINTS_PER_JOB + 1, SPREAD + 1],
])('%i hints come out of their %i jobs as they went in', (count, jobCount) => {
  const jobs = jobsFor(hints(count));
  expect(jobs).toHaveLength(jobCount);
  expect(jobs.flatMap((job) => hintsOf(JSON.parse(JSON.stringify(job.data))) ?? [])).toEqual(hints(count));
});

test.each([
  {},
  { requestId: 1, version: 1 },
  { requestId: 'req_1', version: -1 },
  { requestId: 'req_1', version: 0.5 },
  { hints: [] },
  { hints: [{}] },
  { hints: hints(HINTS_PER_JOB + 1) },
])('%j is no job of ours', (data) => {
  expect(hintsOf(data)).toBeUndefined();
});
