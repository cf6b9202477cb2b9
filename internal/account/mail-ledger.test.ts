/** The ledger of hand-overs: what may have arrived, second mails, and what is dropped first. */
import { expect, test } from '@jest/globals';
import type { MailHandOver, MailLedger } from './account.ts';
import { newSecondMails, secondMails, toForget } from './mail-ledger.ts';

const at = (second: number): Date => new Date(1_000 * second);
const intent = (claim: number, startedAt = 10 * claim) => ({
  claim,
  startedAt: at(startedAt),
  attempt: claim,
  host: 'processor-1',
});

/** By default, hand-over `claim` starts at second 10 × claim and ends a second later. */
const handOver = (
  claim: number,
  result: MailHandOver['result'],
  endedAt = 10 * claim + 1,
): MailHandOver =>
  result === undefined ? intent(claim) : { ...intent(claim), result, endedAt: at(endedAt) };

const toldOf = (seconds: ReturnType<typeof secondMails>) =>
  seconds.map(({ handOver: { claim }, cause }) => [claim, cause]);

const ledger = (...handOvers: MailHandOver[]): MailLedger => ({
  begun: handOvers.length,
  possible: 0,
  handOvers: Object.fromEntries(handOvers.map((one) => [one.claim, one])),
});

test.each<[string, MailHandOver['result'][], [number, string][]]>([
  ['none after what reached nobody', ['refused', 'unreachable', 'accepted'], []],
  ['after an ambiguous end', ['ambiguous', 'accepted'], [[2, 'ambiguous_data']]],
  ['after one without a result', [undefined, 'accepted'], [[2, 'crash']]],
  ['after a mail that was accepted: wanted', ['accepted', 'accepted'], [[2, 'resent']]],
])('second mails: %s', (_name, results, expected) => {
  const handOvers = results.map((result, index) => handOver(index + 1, result));
  expect(toldOf(secondMails(handOvers))).toEqual(expected);
});

test('second mails: while the one before was still under way, as after a freeze', () => {
  const frozen = handOver(1, 'accepted', 25);
  expect(toldOf(secondMails([frozen, handOver(2, 'accepted')]))).toEqual([[2, 'crash']]);
});

test('second mails are each counted once, by the next hand-over that ends', () => {
  const cut = handOver(1, 'ambiguous');
  const dead = handOver(2, undefined);
  const refused = handOver(3, 'refused');
  const last = handOver(4, 'accepted');
  const counted = (claim: number, ...handOvers: MailHandOver[]) =>
    toldOf(newSecondMails(ledger(...handOvers), claim));
  expect(counted(1, cut)).toEqual([]);
  // The second process died, so the third counts that mail, although its own mail was refused.
  expect(counted(3, cut, dead, refused)).toEqual([[2, 'ambiguous_data']]);
  expect(counted(4, cut, dead, refused, last)).toEqual([[4, 'crash']]);
  // The third process counted its own mail.
  expect(counted(4, cut, handOver(3, 'accepted'), last)).toEqual([[4, 'resent']]);
  // The second process was only frozen; when it resumes, its mail is already counted.
  expect(counted(2, cut, handOver(2, 'accepted', 99), refused, last)).toEqual([]);
});

test('room for one more is made by removing the oldest entries that reached nobody', () => {
  const after = (first: MailHandOver['result'][], refused: number): number[] => {
    const results = [...first, ...Array<'refused'>(refused).fill('refused')];
    return toForget(ledger(...results.map((one, index) => handOver(index, one))));
  };
  expect(after(['ambiguous', undefined], 38)).toEqual([2]);
  expect(after([], 42)).toEqual([0, 1, 2]);
});
