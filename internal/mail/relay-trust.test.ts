import { expect, test } from '@jest/globals';
import type { Account } from '../account/account.ts';
import { createLogger } from '../platform/process/log.ts';
import type { RedisClient } from '../platform/stores/redis.ts';
import { refusalOf, wordsAlike, type HandOver } from './relay-answers.ts';
import {
  ALIKE_RECIPIENTS,
  areAlike,
  NOT_TAKEN_LEAST,
  RelayTrust,
  TAKEN_AT_MOST,
} from './relay-trust.ts';

const ACCEPTED: HandOver = { result: 'accepted', answer: '250 ok' };
const refused = (answer: string): HandOver => ({
  result: 'refused',
  ...refusalOf('rcpt', Number(answer.slice(0, 3)), answer),
});

/** A processor whose Redis is away, with a clock that the test moves. */
function newTrust() {
  const time = { ms: 0 };
  const counts = { alike: 0, notTaken: 0 };
  const trust = new RelayTrust({
    at: 'relay:25',
    redis: { status: 'end' } as RedisClient,
    installation: { id: 'i' },
    metrics: {
      mailsRefusedAlike: { inc: () => (counts.alike += 1) },
      mailsNotTaken: {
        set: (value: number) => (counts.notTaken = value),
        inc: () => {},
        reset: () => {},
        remove: () => {},
      },
    },
    clock: { monotonicMs: () => time.ms, now: () => new Date(time.ms) },
    log: createLogger('test', 'silent'),
  });
  let mails = 0;
  /** The class that counts of an e-mail to a mailbox of its own. */
  const hand = async (handOver: HandOver, domain: string, account?: Account) => {
    mails += 1;
    time.ms += 1;
    const owner = account ?? { _id: `acc_${mails}`, email: `u${mails}@${domain}` };
    const judged = await trust.judge(handOver, owner);
    return 'failure' in judged ? judged.failure : judged.result;
  };
  return { trust, time, counts, hand };
}

const UNKNOWN = refused('550 5.1.1 <x@y.example>: Recipient address rejected: User unknown');
const domains = ['a.example', 'b.example', 'c.example', 'd.example', 'e.example'];

test('the same words for different recipients and domains are about us until others are taken', async () => {
  const { trust, counts, hand } = newTrust();
  const classes: string[] = [];
  for (let n = 0; n < 12; n += 1) classes.push(await hand(UNKNOWN, domains[n % 5]!));
  expect(classes).toEqual([
    ...Array(ALIKE_RECIPIENTS - 1).fill('permanent'),
    ...Array(13 - ALIKE_RECIPIENTS).fill('ours'),
  ]);
  expect(counts).toEqual({ alike: 13 - ALIKE_RECIPIENTS, notTaken: 13 - ALIKE_RECIPIENTS });
  expect(trust.warnings()[0]).toMatchObject({ code: 'refuses_alike', of: 'Relay' });
  // Words that are hers stay hers.
  expect(await hand(refused('552 5.2.2 mailbox full'), 'f.example')).toBe('permanent');
  for (let n = 0; n <= TAKEN_AT_MOST; n += 1) await hand(ACCEPTED, 'a.example');
  expect(trust.warnings()).toEqual([]);
  expect(await hand(UNKNOWN, 'g.example')).toBe('permanent');
  expect(counts.notTaken).toBe(0);
});

test.each([
  ['200 made-up mailboxes of one domain', Array(200).fill('one.example')],
  [
    'each other e-mail is taken',
    Array.from({ length: 60 }, (_, n) => (n % 2 ? '' : `${n}.example`)),
  ],
])('%s: each refusal is final', async (_what, all: string[]) => {
  const { hand } = newTrust();
  for (const domain of all)
    expect(await hand(domain === '' ? ACCEPTED : UNKNOWN, domain)).toBe(
      domain === '' ? 'accepted' : 'permanent',
    );
});

/** An account whose e-mail was handed over once with this result. */
const accountOf = (n: number, domain: string, before: HandOver = UNKNOWN): Account => {
  const mail = { handOvers: { 1: { claim: 1, ...before } } };
  return { _id: `acc_${n}`, email: `u@${domain}`, mail } as unknown as Account;
};

test.each([
  ['in the same words', UNKNOWN],
  ['in other words', refused('550 5.7.1 Relaying denied')],
])('of 300 that wait, refused before %s, four end in three rounds', async (_words, before) => {
  const { hand } = newTrust();
  const waiting = Array.from({ length: 300 }, (_, n) => accountOf(n, `${n % 50}.example`, before));
  const fresh = waiting.map(({ mail: _mail, ...account }) => account);
  const classes: string[] = [];
  for (const account of [...fresh, ...waiting, ...waiting])
    classes.push(await hand(UNKNOWN, '', account));
  expect(classes.filter((one) => one === 'permanent')).toHaveLength(ALIKE_RECIPIENTS - 1);
});

test('an e-mail that is tried again is no further recipient', async () => {
  const { hand } = newTrust();
  const waiting = [...domains, 'f.example'].map((domain, n) => accountOf(n, domain));
  for (const domain of domains) await hand(UNKNOWN, domain);
  for (const account of waiting) expect(await hand(UNKNOWN, '', account)).toBe('ours');
  for (let n = 0; n <= TAKEN_AT_MOST; n += 1) await hand(ACCEPTED, 'a.example');
  for (const account of waiting) expect(await hand(UNKNOWN, '', account)).toBe('permanent');
});

test('an e-mail of before an order counts as new, and what is shown ends with time', async () => {
  const { trust, time } = newTrust();
  const judgeAll = async (since: number) => {
    const classes: unknown[] = [];
    for (const [n, domain] of domains.entries()) {
      const judged = await trust.judge(UNKNOWN, accountOf(n, domain), since);
      classes.push('failure' in judged && judged.failure);
    }
    return classes;
  };
  expect(await judgeAll(0)).toEqual(Array(5).fill('permanent'));
  expect(await judgeAll(1)).toEqual([...Array(4).fill('permanent'), 'ours']);
  expect(trust.warnings()).toHaveLength(1);
  time.ms += 1_200_000;
  expect(trust.warnings()).toEqual([]);
});

test.each(['451 4.3.0 try later', '550 5.7.1 Relaying denied'])(
  'a relay that answers %s to all has taken none',
  async (answer) => {
    const { trust, hand } = newTrust();
    for (let n = 1; n < NOT_TAKEN_LEAST; n += 1) await hand(refused(answer), 'a.example');
    expect(trust.warnings()).toEqual([]);
    await hand(refused(answer), 'a.example');
    const words = 'Relay at relay:25: it takes no e-mail';
    expect(trust.warnings()).toEqual([{ code: 'takes_none', of: 'Relay', words }]);
    await hand(ACCEPTED, 'a.example');
    expect(trust.warnings()).toEqual([]);
  },
);

test('what another process handed over before is no sign of what the relay takes now', () => {
  const sights = (newestTookAt: number) =>
    [4, 3, 2, 1, 0].map((n) => ({
      at: 100 + n,
      taken: 1_000,
      tookAt: n === 4 ? newestTookAt : 99,
      said: { words: 'w', recipient: `r${n}`, domain: `d${n % 3}` },
    }));
  expect(areAlike(sights(99), 'w')).toBe(true);
  expect(areAlike(sights(102), 'w')).toBe(false);
  expect(areAlike(sights(99), 'other')).toBe(false);
});

test('words are the same whatever address, number, id and host they name', () => {
  const of = (answer: string, email: string) => wordsAlike(refusalOf('rcpt', 550, answer), email);
  expect(
    of(
      '550-5.1.1 <ann@a.example>: no such user ann\n550 5.1.1 id 4f2Ab mx1.a.example[192.0.2.1]',
      'ann@a.example',
    ),
  ).toBe(
    of(
      '550-5.1.1 <bo@b.example>: no such user Bo\n550 5.1.1 id 77 mx2.b.example[192.0.2.7]',
      'bo@b.example',
    ),
  );
  expect(of('550 5.1.1 no such user', 'ann@a.example')).not.toBe(
    of('550 5.1.1 mailbox gone', 'ann@a.example'),
  );
});
