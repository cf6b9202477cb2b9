/** Preferences as clients and proxies write them. */
import { expect, test } from '@jest/globals';
import { preferenceIn } from './prefer.ts';

const MANY = 16_000;

test.each([
  [undefined, undefined],
  ['', undefined],
  ['receipt', ''],
  ['RECEIPT', ''],
  ['receipt=""', ''],
  ['receipt; a="b,receipt=no"', ''],
  ['wait=5, receipt', ''],
  ['respond-async,,receipt ;x', ''],
  [['wait=1', 'Receipt'], ''],
  ['receipt=no', 'no'],
  ['receipt = "a\\"b" ; c', 'a"b'],
  ['receipt=x, receipt', 'x'],
  ['receipts', undefined],
  ['x="receipt"', undefined],
  ['x="a, receipt', undefined],
  ['receipt "', undefined],
  ['receipt=a b', undefined],
  [`receipt${' '.repeat(MANY)}x`, undefined],
  [`receipt=${' '.repeat(MANY)}"`, undefined],
  [`${'",'.repeat(MANY / 2)}receipt`, ''],
  [`${'\\"'.repeat(MANY / 2)},receipt`, undefined],
])('%j', (header, value) => {
  const begin = performance.now();
  const seen = preferenceIn(header, 'receipt');
  expect(performance.now() - begin).toBeLessThan(500);
  expect(seen).toBe(value);
});
