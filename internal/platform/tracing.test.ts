/** Parses traceparents and names errors; test/integration/traces.test.ts covers the SDK. */
import { expect, test } from '@jest/globals';
import { errorTypeOf, isTraceparent, traceFields } from './tracing.ts';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const valid = `00-${traceId}-b7ad6b7169203331-01`;

test.each([
  valid,
  `00-${traceId}-b7ad6b7169203331-00`,
  // Unknown flags do not invalidate a trace.
  `00-${traceId}-b7ad6b7169203331-ff`,
])('%j is a traceparent', (text) => {
  expect(isTraceparent(text)).toBe(true);
  expect(traceFields(text)).toEqual({ trace_id: traceId });
});

test.each([
  undefined,
  '',
  `${valid}\n`,
  `${valid}, ${valid}`,
  valid.toUpperCase(),
  `01${valid.slice(2)}`,
  `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
])('%j is not a traceparent', (text) => {
  expect(isTraceparent(text)).toBe(false);
  expect(traceFields(text)).toEqual({});
});

test('an error is named by its code, else by its class, never by its message', () => {
  expect(errorTypeOf(Object.assign(new Error('canary'), { code: 11_000 }))).toBe('11000');
  expect(errorTypeOf(Object.assign(new Error('canary'), { code: 'ECONNREFUSED' }))).toBe(
    'ECONNREFUSED',
  );
  expect(errorTypeOf(new TypeError('canary'))).toBe('TypeError');
  expect(errorTypeOf('canary')).toBe('string');
});
