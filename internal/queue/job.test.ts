import { expect, test } from '@jest/globals';
import { hintFor, hintSchema, jobId, jobOptions } from './job.ts';

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

test.each([
  {},
  { requestId: 1, version: 1 },
  { requestId: 'req_1', version: -1 },
  { requestId: 'req_1', version: 0.5 },
])('%j is no hint', (data) => {
  expect(hintSchema.safeParse(data).success).toBe(false);
});
