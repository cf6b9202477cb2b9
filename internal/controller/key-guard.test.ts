/** What the guard remembers; test/integration/key-rounds.test.ts has what it keeps. */
import { expect, test } from '@jest/globals';
import { KEYS_MAX, type StoredKey } from '../partner/key-document.ts';
import { guardKeys } from './key-guard.ts';

const now = new Date();
const keyOf = (partnerId: string): StoredKey => ({
  hash: partnerId,
  partnerId,
  status: 'active',
  terms: {},
  source: { namespace: 'keys', name: partnerId, uid: partnerId },
  updatedAt: now,
});

test('the memory has room in the document, however many partners have Secrets', () => {
  const next = Array.from({ length: 3 * KEYS_MAX }, (_none, at) => keyOf(`p${at}`));
  const memory = { ended: [], arrived: [] };
  const round = guardKeys({ now, memory, stored: [], next, gone: [] });
  expect(round.memory.arrived).toHaveLength(KEYS_MAX);
});

test('a row of an earlier version counts as one key at least', () => {
  const stored = [keyOf('p0'), keyOf('p1')];
  const ended = ['p2', 'p3'].map((owner) => ({ owner, at: now }));
  const round = guardKeys({ now, memory: { ended, arrived: [] }, stored, next: [], gone: stored });
  expect(round.losses[0]?.held).toEqual(stored);
});
