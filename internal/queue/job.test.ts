import { expect, test } from '@jest/globals';
import { HINTS_PER_JOB, SPREAD, hintFor, hintsOf, jobOptions, jobsFor, type Hint } from './job.ts';

test('a hint holds id, version, trace context and partner of the record, and nothing else of it', () => {
  const record = {
    _id: 'req_1',
    version: 3,
    traceparent: '00-a-b-01',
    body: 'secret',
    remoteIp: '10.0.0.1',
  };
  expect(hintFor(record)).toEqual({ requestId: 'req_1', version: 3, traceparent: '00-a-b-01' });
  expect(hintFor({ ...record, partnerId: 'acme' })).toMatchObject({ partnerId: 'acme' });
  expect(hintFor({ _id: 'req_1', version: 0 })).toEqual({ requestId: 'req_1', version: 0 });
});

test('jobs leave nothing behind', () => {
  expect(jobOptions).toEqual({ attempts: 1, removeOnComplete: true, removeOnFail: true });
});

const hints = (count: number): Hint[] =>
  Array.from({ length: count }, (_, index) => ({ requestId: `req_${index}`, version: index % 3 }));

test.each([
  [0, 0],
  [50, SPREAD],
  [SPREAD * HINTS_PER_JOB, SPREAD],
  [SPREAD * HINTS_PER_JOB + 1, SPREAD + 1],
])('%i hints come out of their %i jobs as they went in', (count, jobCount) => {
  const jobs = jobsFor(hints(count));
  expect(jobs).toHaveLength(jobCount);
  expect(jobs.flatMap((job) => hintsOf(JSON.parse(JSON.stringify(job))) ?? [])).toEqual(
    hints(count),
  );
});
