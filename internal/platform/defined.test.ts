import { expect, test } from '@jest/globals';

import { defined } from './defined.ts';

test('fields that are undefined are absent; null, false and 0 stay', () => {
  const fields = defined({ a: undefined, b: null, c: false, d: 0, e: 'x' });
  expect(Object.entries(fields)).toEqual([
    ['b', null],
    ['c', false],
    ['d', 0],
    ['e', 'x'],
  ]);
});
