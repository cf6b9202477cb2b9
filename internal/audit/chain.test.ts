/** The chain of the operators' trail: what is changed or taken out shows, and what is past its time does not. */
import { describe, expect, test } from '@jest/globals';
import { checkChain, digestOf } from './chain.ts';
import type { TrailEntry } from './entry.ts';

const DAY = 86_400_000;
const START = Date.parse('2026-01-01T00:00:00Z');
const KEPT = 730;
const dayOf = (days: number): Date => new Date(START + days * DAY);

/** An entry a day, from the first. */
function chain(length: number): TrailEntry[] {
  const entries: TrailEntry[] = [];
  for (let seq = 1; seq <= length; seq += 1) {
    const last = entries.at(-1);
    entries.push({
      _id: `opr_${seq}`,
      seq,
      ...(last === undefined ? {} : { previous: { sha256: digestOf(last), expiresAt: last.expiresAt } }),
      at: dayOf(seq),
      by: 'jane',
      action: 'retry',
      result: 'begun',
      expiresAt: dayOf(seq + KEPT),
    });
  }
  return entries;
}

async function check(entries: readonly TrailEntry[], now = dayOf(9)) {
  async function* read(): AsyncGenerator<TrailEntry> {
    yield* entries;
  }
  return checkChain(read(), now);
}

const without = (...gone: readonly number[]): TrailEntry[] => chain(5).filter(({ seq = 0 }) => !gone.includes(seq));

test('an untouched chain holds, whatever the order in which a store gives the fields', async () => {
  const entries = chain(5);
  const last = { seq: 5, sha256: digestOf(entries[4]!) };
  expect(await check(entries)).toEqual({ entries: 5, breaks: [], last });
  const turned = entries.map(
    (entry) => Object.fromEntries(Object.entries(entry).toReversed()) as unknown as TrailEntry,
  );
  expect(await check(turned)).toEqual({ entries: 5, breaks: [], last });
  expect(await check([])).toEqual({ entries: 0, breaks: [] });
});

describe('a break', () => {
  test.each<[what: string, change: Partial<TrailEntry>]>([
    ['who', { by: 'joe' }],
    ['why', { why: 'nothing to see' }],
    ['the result', { result: 'done' }],
    ['until when it is kept', { expiresAt: dayOf(8) }],
    ['when', { at: dayOf(4) }],
  ])('%s was changed', async (_what, change) => {
    const entries = chain(5).map((entry) => (entry.seq === 3 ? { ...entry, ...change } : entry));
    expect((await check(entries)).breaks).toEqual([{ kind: 'trail_changed', id: 'opr_3' }]);
  });

  test('entries were removed before their time', async () => {
    expect((await check(without(3))).breaks).toEqual([{ kind: 'trail_missing', id: 'opr_4' }]);
    expect((await check(without(1, 2))).breaks).toEqual([{ kind: 'trail_missing', id: 'opr_3' }]);
  });
});

test('entries past their time may be gone, and no others', async () => {
  expect((await check(without(1, 2), dayOf(2 + KEPT))).breaks).toEqual([]);
  expect((await check(without(1, 2), dayOf(1 + KEPT))).breaks).toEqual([{ kind: 'trail_missing', id: 'opr_3' }]);
});

test('removed newest entries show in the last number only', async () => {
  expect(await check(without(4, 5))).toMatchObject({ breaks: [], last: { seq: 3 } });
});
