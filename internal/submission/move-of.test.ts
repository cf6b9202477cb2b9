/** Compares the filters with the tables for every kind of record. */
import { expect, test } from '@jest/globals';
import { MemoryCollection } from '../../test/simulation/memory-collection.ts';
import { combinations } from '../../test/support/combinations.ts';
import { newRecord, retention } from '../../test/support/records.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
import { moveOf, touchOf } from './move-of.ts';
import {
  events,
  eventsOf,
  holds,
  nextState,
  states,
  touches,
  type Facts,
  type State,
  type Touch,
} from './states.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from './submission.ts';

const NOW = new Date('2026-11-20T10:00:00Z');
const claims = {
  none: {},
  held: { claimedUntil: new Date(+NOW + 1) },
  expired: { claimedUntil: NOW },
};
const both = [true, false];

const cases = combinations({
  state: states,
  version: [0, 1, 2],
  adopted: both,
  erased: both,
  claim: ['none', 'held', 'expired'] as const,
  due: both,
}).map(({ state, version, adopted, erased, claim, due }) => ({
  facts: { claimed: version > 0, adopted, erased, claim, due } satisfies Omit<Facts, 'account'>,
  record: newRecord({
    state,
    version,
    dueAt: due ? NOW : later(NOW, DAY_MS),
    ...(adopted ? { adopted } : {}),
    ...(erased ? { erasedAt: NOW } : {}),
    ...claims[claim],
  }),
}));

const collection = new MemoryCollection();
for (const { record } of cases) collection.insert({ ...record });
const newer = newRecord({ schema: RECORD_SCHEMA + 1 });

const matches = (filter: object | undefined, { _id }: SubmissionRecord): boolean =>
  filter !== undefined && collection.find({ _id, ...filter }).length === 1;
/** Ingest withdraws and makes due without having read the record. */
const seenFor = (unseen: boolean, { state, version }: SubmissionRecord) =>
  unseen ? {} : { state, version };
const days = { ...retention, withdrawn: 7 };

test.each(events)('%s: the filter is as the table says', (event) => {
  const wrong: unknown[] = [];
  const unseen = (eventsOf.ingest as readonly string[]).includes(event);
  for (const { record, facts } of cases) {
    for (const account of both) {
      const options = { now: NOW, accountId: account ? 'acc_1' : undefined, retention: days };
      const move = moveOf(event, seenFor(unseen, record), options);
      const to = nextState(record.state, event, { ...facts, account });
      const found = matches(move?.filter, record) ? move?.to : undefined;
      if (found !== to) wrong.push({ record, account, found, to });
      if (unseen) continue;
      // A record that has changed since it was read.
      const elsewhere = { ...record, version: record.version + 1 };
      const late = moveOf(event, elsewhere, options);
      if (matches(late?.filter, record)) wrong.push({ record, late });
    }
  }
  expect(wrong).toEqual([]);
});

test.each(Object.keys(touches) as Touch[])('%s: the filter is as the table says', (touch) => {
  const wrong: unknown[] = [];
  const { from, when } = touches[touch];
  for (const { record, facts } of cases) {
    const seen = seenFor(touch === 'make_due', record);
    const allowed =
      (from as readonly State[]).includes(record.state) &&
      holds(when, { ...facts, account: false });
    if (matches(touchOf(touch, seen, NOW), record) !== allowed) wrong.push({ record, allowed });
  }
  expect(wrong).toEqual([]);
});

test('records of a newer version are left alone', () => {
  collection.insert({ ...newer });
  expect(matches(touchOf('claim', { version: 0 }, NOW), newer)).toBe(false);
  const erasure = moveOf('erase', newer, { now: NOW, retention });
  expect(matches(erasure?.filter, newer)).toBe(false);
});
