/** What is marked of a row that a search has found: never more than stands there masked. */
import { expect, test } from '@jest/globals';
import type { Reading } from './read-as.ts';
import { markIn, rowOf } from './search.ts';
import { newRecord } from '../../../test/support/records.ts';

const applicant = {
  businessName: ' Old  Harbor Bakery',
  email: 'ada@harbor.example',
  ein: '123456789',
};

test.each<[as: Reading['as'], value: string, marked: string | undefined]>([
  ['email', 'ada@harbor.example', 'a***@h***.example'],
  ['emailStart', 'ad', 'a***'],
  ['emailStart', 'ada@har', 'a***@h***.example'],
  ['domain', 'harbor.example', 'h***.example'],
  ['ein', '123456789', '*****6789'],
  ['name', 'OLD', 'O***'],
  ['name', 'härbor', 'H***'],
  ['name', 'rbor ba', 'H*** B***'],
  ['name', 'old harbor bakery', 'O*** H*** B***'],
  ['name', 'another', undefined],
  ['id', 'req_01', undefined],
])('by %s %s: %s', (as, value, marked) => {
  const row = rowOf({ ...newRecord(), applicant }, false, true);
  const [column, from, to] = markIn({ as, value }, row, applicant) ?? [];
  expect(column && row[column].slice(from, to)).toBe(marked);
});

test('who may not reveal sees one letter of the name, also where a part of it would match', () => {
  const row = rowOf({ ...newRecord(), applicant }, false);
  const [column, from, to] =
    markIn({ as: 'name', value: 'old harbor bakery' }, row, applicant) ?? [];
  expect([row.business, column && row[column].slice(from, to)]).toEqual(['O***', 'O***']);
});
