/**
 * What the audit tells without calling it a problem. The simulation sees that correct records have no
 * finding, and test/integration/self-audit.test.ts that each problem has one.
 */
import { expect, test } from '@jest/globals';
import type { CheckedRecord } from '../submission/support-queries.ts';
import { checkRecord, type Kind } from './rules.ts';

const NOW = new Date('2026-11-21T12:00:00Z');
const ago = (minutes: number): Date => new Date(NOW.getTime() - minutes * 60_000);
const DAYS = 1_440;

const open: CheckedRecord = {
  _id: 'req_1',
  partnerId: 'demo',
  state: 'recorded',
  schema: 1,
  httpStatus: 202,
  receivedAt: ago(10),
  history: [{ state: 'recorded', at: ago(10), attempt: 0 }],
  dueAt: ago(1),
};
const mailing: Partial<CheckedRecord> = {
  state: 'account_created',
  history: [{ state: 'account_created', at: ago(10), attempt: 0 }],
  accountId: 'acc_1',
};

test.each<[Kind[], Partial<CheckedRecord>]>([
  [[], {}],
  [['newer_schema'], { schema: 2 }],
  [['mail_waits'], { ...mailing, dueAt: ago(6) }],
  [['open_too_long'], { ...mailing, receivedAt: ago(5 * DAYS) }],
  [[], { ...mailing, receivedAt: ago(5 * DAYS), partnerId: 'held' }],
])('%j', (kinds, changes) => {
  const account = { _id: 'acc_1', requestId: 'req_1', createdAt: ago(10) };
  const made = 'accountId' in changes ? account : undefined;
  const options = { now: NOW, onHold: new Set(['held']) };
  expect(checkRecord({ ...open, ...changes }, made, options)).toEqual(kinds);
});
