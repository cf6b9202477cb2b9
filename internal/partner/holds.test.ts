import { expect, test } from '@jest/globals';
import { holdOver, type Hold } from './holds.ts';

const at = (minute: number): Date => new Date(Date.UTC(2026, 10, 22, 12, minute));
const hold = (more: Partial<Hold>): Hold => ({
  _id: 'hld_1',
  partnerId: 'acme',
  state: 'held',
  at: at(0),
  by: 'jane',
  ...more,
});
const stateOver = (...holds: Hold[]) => holdOver(holds, { partnerId: 'acme', receivedAt: at(10) })?.state;

test.each<[string, Partial<Hold>, Hold['state'] | undefined]>([
  ['everything of its partner', {}, 'held'],
  ['nothing of another', { partnerId: 'other' }, undefined],
  ['what came at its time', { since: at(10) }, 'held'],
  ['not what came before', { since: at(11) }, undefined],
  ['nothing once it is released', { state: 'released' }, undefined],
  ['what came before it was discarded', { state: 'discarded', until: at(11) }, 'discarded'],
  ['not what came since', { state: 'discarded', until: at(10) }, undefined],
])('a hold covers %s', (_what, more, wanted) => {
  expect(stateOver(hold(more))).toBe(wanted);
});

test('what is discarded is discarded, whichever other hold covers it', () => {
  const discarded = hold({ state: 'discarded', until: at(20) });
  expect([stateOver(hold({}), discarded), stateOver(discarded, hold({}))]).toEqual(['discarded', 'discarded']);
});

test('a record without a partner is never held', () => {
  expect(holdOver([hold({})], { receivedAt: at(10) })).toBeUndefined();
});
