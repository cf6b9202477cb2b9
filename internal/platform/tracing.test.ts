/** Tracing while it is off, and traceparents; test/integration covers the real SDK. */
import { describe, expect, test } from '@jest/globals';
import {
  errorTypeOf,
  inSpan,
  isTraceparent,
  startSpan,
  startSpans,
  traceFields,
  tracing,
} from './tracing.ts';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const valid = `00-${traceId}-b7ad6b7169203331-01`;

describe('off', () => {
  const options = { name: 'work', kind: 'INTERNAL', parent: valid } as const;

  test('no span is made and no traceparent either', () => {
    expect(tracing()).toBe(false);
    expect(startSpan(options)).toBeUndefined();
    expect(startSpans(options, [valid, valid])).toBeUndefined();
  });

  test('the work is just done: its result and its error come through as they are', async () => {
    const result = Promise.resolve('done');
    const seen: unknown[] = [];
    const work = (...given: unknown[]) => {
      seen.push(...given);
      return result;
    };
    expect(inSpan(options, work)).toBe(result);
    expect(seen).toEqual([]);
    const error = new Error('failed');
    await expect(inSpan(options, () => Promise.reject(error))).rejects.toBe(error);
  });
});

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
])('%j is none', (text) => {
  expect(isTraceparent(text)).toBe(false);
  expect(traceFields(text)).toEqual({});
});

test('an error is told by its code, else by its class, never by its words', () => {
  expect(errorTypeOf(Object.assign(new Error('canary'), { code: 11_000 }))).toBe('11000');
  expect(errorTypeOf(Object.assign(new Error('canary'), { code: 'ECONNREFUSED' }))).toBe(
    'ECONNREFUSED',
  );
  expect(errorTypeOf(new TypeError('canary'))).toBe('TypeError');
  expect(errorTypeOf('canary')).toBe('string');
});
