/** The ledger of hand-overs: what may have arrived, second mails, and what is dropped first. */
import { describe, expect, test } from '@jest/globals';
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

const ledger = (...handOvers: MailHandOver[]): MailLedger => ({
  begun: handOvers.length,
  possible: 0,
  handOvers: Object.fromEntries(handOvers.map((one) => [one.claim, one])),
});

describe('second mails', () => {
  test.each<[string, MailHandOver[], [number, string][]]>([
    [
      'none after what reached nobody',
      [handOver(1, 'refused'), handOver(2, 'unreachable'), handOver(3, 'accepted')],
      [],
    ],
    [
      'after an ambiguous end',
      [handOver(1, 'ambiguous'), handOver(2, 'accepted')],
      [[2, 'ambiguous_data']],
    ],
    [
      'after one without a result',
      [handOver(1, undefined), handOver(2, 'accepted')],
      [[2, 'crash']],
    ],
    [
      'after a mail that was accepted: wanted',
      [handOver(1, 'accepted'), handOver(2, 'accepted')],
      [[2, 'resent']],
    ],
    [
      'while the one before was still under way, as after a freeze',
      [handOver(1, 'accepted', 25), handOver(2, 'accepted')],
      [[2, 'crash']],
    ],
  ])('%s', (_name, handOvers, expected) => {
    expect(secondMails(handOvers).map(({ handOver: { claim }, cause }) => [claim, cause])).toEqual(
      expected,
    );
  });

  test('are each counted once, by the next hand-over that ends', () => {
    const [cut, dead, refused, last] = [
      handOver(1, 'ambiguous'),
      handOver(2, undefined),
      handOver(3, 'refused'),
      handOver(4, 'accepted'),
    ];
    const counted = (claim: number, ...handOvers: MailHandOver[]) =>
      newSecondMails(ledger(...handOvers), claim).map((second) => [
        second.handOver.claim,
        second.cause,
      ]);
    expect(counted(1, cut)).toEqual([]);
    // The second process died, so the third counts that mail, although its own mail was refused.
    expect(counted(3, cut, dead, refused)).toEqual([[2, 'ambiguous_data']]);
    expect(counted(4, cut, dead, refused, last)).toEqual([[4, 'crash']]);
    // The third process counted its own mail.
    expect(counted(4, cut, handOver(3, 'accepted'), last)).toEqual([[4, 'resent']]);
    // The second process was only frozen; when it resumes, its mail is already counted.
    expect(counted(2, cut, handOver(2, 'accepted', 99), refused, last)).toEqual([]);
  });
});

describe('room for one more', () => {
  const many = (results: MailHandOver['result'][]): MailLedger =>
    ledger(...results.map((one, index) => handOver(index, one)));

  test('is made by removing the oldest entry that reached nobody', () => {
    expect(
      toForget(many(['ambiguous', undefined, ...Array<'refused'>(38).fill('refused')])),
    ).toEqual([2]);
    expect(toForget(many(['refused', ...Array<'refused'>(41).fill('refused')]))).toEqual([0, 1, 2]);
  });
});
