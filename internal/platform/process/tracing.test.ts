/** Parses traceparents and names errors; test/integration/traces.test.ts covers the SDK. */
import { expect, test } from '@jest/globals';
import { trace } from '@opentelemetry/api';
import { contextOf, errorTypeOf, traceFields, traceparentOf } from './tracing.ts';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const valid = `00-${traceId}-b7ad6b7169203331-01`;
const readTraceparent = (text: string | undefined) => traceparentOf(trace.getSpan(contextOf(text)));

test.each([
  [valid, '01'],
  [`00-${traceId}-b7ad6b7169203331-00`, '00'],
  // Unknown flags do not invalidate a trace.
  [`00-${traceId}-b7ad6b7169203331-ff`, '01'],
])('%j is a traceparent with the flags %s', (text, flags) => {
  expect(readTraceparent(text)).toBe(text.replace(/..$/, flags));
  expect(traceFields(text)).toEqual({ trace_id: traceId });
});

test.each([
  undefined,
  '',
  `${valid}\n`,
  `${valid}, ${valid}`,
  valid.toUpperCase(),
  `ff${valid.slice(2)}`,
  `01${valid.slice(2)}more`,
  `00-${'0'.repeat(32)}-b7ad6b7169203331-01`,
])('%j is not a traceparent', (text) => {
  expect(readTraceparent(text)).toBeUndefined();
  expect(traceFields(text)).toEqual({});
});

test.each(['', '-', '-what-comes-later'])(
  'a traceparent of a later version that ends in %j is read by its first four fields',
  (more) => expect(readTraceparent(`cc${valid.slice(2)}${more}`)).toBe(valid),
);

test('an error is named by its code, else by its class, never by its message', () => {
  expect(errorTypeOf(Object.assign(new Error('canary'), { code: 11_000 }))).toBe('11000');
  expect(errorTypeOf(Object.assign(new Error('canary'), { code: 'ECONNREFUSED' }))).toBe(
    'ECONNREFUSED',
  );
  expect(errorTypeOf(new TypeError('canary'))).toBe('TypeError');
  expect(errorTypeOf('canary')).toBe('string');
});
