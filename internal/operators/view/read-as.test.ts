import { expect, test } from '@jest/globals';
import { readAs } from './read-as.ts';

const now = new Date('2026-11-29');
const ID = 'req_01m8fqgxege69vwtn8rn390c8f';

test.each([
  [ID, ID],
  ['01M8FQGX', 'req_01m8fqgx'],
  ['o1m8-fqgx-ege6-9vwt', 'req_01m8fqgxege69vwt'],
  ['REQ O1M8 FQGX EGE6 9UWT', 'req_01m8fqgxege69vwt'],
  [`"request_id":"${ID}",`, ID],
  [`https://console.example/requests/${ID}?a=b`, ID],
  ['acc_01m8fqgxate88rn9', 'acc_01m8fqgxate88rn9'],
])('%j is the id %j', (text, value) => {
  expect(readAs(text, now)[0]).toEqual({ as: 'id', value });
});

test.each([
  ['12-3456789', [['ein', '123456789']]],
  ['12\u20133456789', [['ein', '123456789']]],
  ['12 3456 789', [['ein', '123456789']]],
  ['Ada <ADA@Example.com>', [['email', 'ada@example.com']]],
  ['mailto:ada@example.com.', [['email', 'ada@example.com']]],
  ['@Example.com', [['domain', 'example.com']]],
  ['ada@exam', [['emailStart', 'ada@exam']]],
  [
    'example.com',
    [
      ['domain', 'example.com'],
      ['name', 'example.com'],
    ],
  ],
  // Of letters that an id may have, but of no possible time.
  ['Oliver Bakery', [['name', 'Oliver Bakery']]],
  ['Acc Holdings', [['name', 'Acc Holdings']]],
  ['Requisition Ltd', [['name', 'Requisition Ltd']]],
  ['99999999', [['name', '99999999']]],
  ['req_01', []],
  ['w'.repeat(1_000), [['name', 'w'.repeat(1_000)]]],
  ["'".repeat(1_000), []],
] as const)('%j is read as %j', (text, readings) => {
  expect(readAs(text, now).map((one) => [one.as, one.value])).toEqual(readings);
});
