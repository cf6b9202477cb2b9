/** The audit finds every kind of wrong record and nothing in a correct record of each state. */
import { expect, test } from '@jest/globals';
import { states, type State } from '../submission/states.ts';
import type { CheckedAccount } from '../account/account-queries.ts';
import type { CheckedRecord } from '../submission/support-queries.ts';
import { checkRecord, type Kind } from './rules.ts';

const NOW = new Date('2026-11-21T12:00:00Z');
const ago = (minutes: number): Date => new Date(NOW.getTime() - minutes * 60_000);
const DAYS = 1_440;

const answers: Partial<Record<State, number>> = { malformed: 400, refused: 401, withdrawn: 500 };
const withAccount: readonly State[] = ['account_created', 'completed', 'undeliverable'];

function right(state: State, changes: Partial<CheckedRecord> = {}): CheckedRecord {
  const open = state === 'recorded' || state === 'account_created';
  return {
    _id: 'req_1',
    state,
    schema: 1,
    httpStatus: answers[state] ?? 202,
    receivedAt: ago(10),
    history: [{ state, at: ago(10), attempt: 0 }],
    ...(open ? { dueAt: ago(1) } : state === 'dead_lettered' ? {} : { expiresAt: ago(-DAYS) }),
    ...(withAccount.includes(state) ? { accountId: 'acc_1' } : {}),
    ...changes,
  };
}
const account: CheckedAccount = {
  _id: 'acc_1',
  requestId: 'req_1',
  createdAt: ago(10),
  notifiedAt: ago(9),
};
const check = (record: CheckedRecord, made?: CheckedAccount): Kind[] =>
  checkRecord(record, made, {
    now: NOW,
    onHold: new Set(['held']),
  });

test.each(states)('a correct %s record has no finding', (state) => {
  expect(check(right(state), withAccount.includes(state) ? account : undefined)).toEqual([]);
});

const { notifiedAt: _, ...notMailed } = account;
const { dueAt: _due, ...neverDue } = right('recorded');
const { expiresAt: _expires, ...neverDeleted } = right('rejected');
const wrong: [Kind, CheckedRecord, CheckedAccount?][] = [
  ['unknown_state', right('paused' as State)],
  ['newer_schema', right('recorded', { schema: 2 })],
  [
    'history_disagrees',
    right('rejected', { history: [{ state: 'recorded', at: NOW, attempt: 0 }] }),
  ],
  ['wrong_answer', right('refused', { httpStatus: 202 })],
  ['overdue', right('recorded', { dueAt: ago(6) })],
  ['mail_waits', right('account_created', { dueAt: ago(6) }), account],
  ['open_too_long', right('account_created', { receivedAt: ago(5 * DAYS) }), account],
  ['deleted_too_soon', right('dead_lettered', { expiresAt: NOW })],
  ['account_missing', right('completed')],
  ['account_unexpected', right('rejected'), account],
  ['account_disagrees', right('undeliverable', { accountId: 'acc_2' }), account],
  ['account_not_closed', right('closed'), account],
  ['mail_not_noted', right('completed'), notMailed],
  ['never_due', neverDue],
  ['never_deleted', neverDeleted],
  ['erased_but_account', right('completed', { erasedAt: NOW }), account],
];
test.each(wrong)('%s', (kind, record, ...made) => {
  expect(check(record, ...made)).toEqual([kind]);
});

test('a record after a crash is no finding, because the next attempt repairs it', () => {
  expect(check(right('recorded'), account)).toEqual([]);
  expect(check(right('dead_lettered'), account)).toEqual([]);
  expect(check(right('completed', { erasedAt: NOW }))).toEqual([]);
  expect(check(right('completed'), { ...notMailed, releasedAt: NOW })).toEqual([]);
});
