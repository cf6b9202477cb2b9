/** A log line never contains an error's message, which can quote data. */
import { expect, test } from '@jest/globals';
import { describeError } from './log.ts';

test('an error is logged by class, code and cause, without its message', () => {
  const error = new TypeError('canary@example.com is taken', {
    cause: Object.assign(new Error('canary'), { code: 'ECONNREFUSED' }),
  });
  const told = describeError(error);
  expect(told).toMatchObject({ type: 'TypeError', cause: { type: 'Error', code: 'ECONNREFUSED' } });
  expect(JSON.stringify(told)).not.toContain('canary');
  expect(describeError('canary')).toEqual({ type: 'string' });
});

test('a message that looks like a stack frame is not logged', () => {
  const told = describeError(new Error('duplicate key\n    at canary (canary.ts:1:1)'));
  expect(told['at']).toMatch(/^at .*log\.test\.ts.*:\d+:\d+\)?$/);
  expect(JSON.stringify(told)).not.toContain('canary');
});
