/** Checks the words that describe a request. */
import { expect, test } from '@jest/globals';
import type { Account, MailHandOver } from '../../account/account.ts';
import { bodyFields } from '../../application/fields.ts';
import { partnerReasonCodes } from '../../application/reasons.ts';
import type { SubmissionRecord } from '../../submission/submission.ts';
import type { FoundSubmission } from './look-up.ts';
import { nextStep } from './next.ts';
import { reasonInWords, reasonName } from './reason-words.ts';
import { errorOf } from './words.ts';
import { maskText } from './mask.ts';
import { mailsInWords, timeline } from './timeline.ts';

const START = new Date('2026-11-21T09:00:00Z').getTime();
const at = (minute: number): Date => new Date(START + minute * 60_000);
const ledgerOf = (...endings: readonly Partial<MailHandOver>[]) => ({
  begun: endings.length,
  possible: endings.filter(({ result }) => result === 'accepted').length,
  handOvers: Object.fromEntries(
    endings.map((ending, index) => {
      const intent = { claim: index, startedAt: at(index), attempt: 1, host: 'processor-1' };
      return [index, { ...intent, endedAt: at(index), ...ending }];
    }),
  ),
});
const failedLogin = { result: 'unreachable', cause: 'EAUTH AUTH PLAIN 535' } as const;
const logins = Array.from({ length: 25 }, () => failedLogin);
const accepted = { result: 'accepted', code: 250 } as const;

test.each([
  ['recorded', { version: 0, dueAt: at(1) }, /^a free place$/],
  ['recorded', { version: 1, dueAt: at(1) }, /^a retry at 2026-11-21 09:01:00 UTC, in 1 min/],
  ['recorded', { version: 1, dueAt: at(0) }, /^a free place$/],
  [
    'account_created',
    { version: 1, dueAt: at(0) },
    /^the relay, .* since 2026-11-21 08:58:00 UTC$/,
  ],
  ['account_created', { version: 1, dueAt: at(0), test: true }, /^a free place$/],
] as const)('with the relay away, a request that is %s, %j, waits for %s', (state, more, waits) => {
  const record = { state, ...more } as unknown as FoundSubmission;
  const line = { processors: 1, relay: { since: at(-2), why: '' } };
  const told = nextStep(record, undefined, { now: at(0), onHold: false, line });
  expect(told.waits).toMatch(waits);
});

test.each<[string, object, object | undefined, RegExp]>([
  ['rejected', { reasons: [{ code: 'invalid_format' }] }, undefined, /^the partner sends a corr/],
  [
    'rejected',
    { reasons: [{ code: 'duplicate_ein', duplicateOf: 'req_1' }] },
    undefined,
    /^help the applicant at the request that has the account$/,
  ],
  [
    'rejected',
    { reasons: [{ code: 'duplicate_ein', duplicateOf: 'req_1' }, { code: 'too_long' }] },
    undefined,
    /; the partner corrects the other faults$/,
  ],
  ['undeliverable', {}, {}, /^ask the partner for the right address$/],
  ['undeliverable', {}, { activation: { usedAt: at(0) } }, /^the link has been used.* a retry /],
])('of a request that is %s, %j, with account %j, the next step is %s', (...row) => {
  const [state, more, account, next] = row;
  const record = { state, ...more } as unknown as FoundSubmission;
  const step = nextStep(record, account as Account | undefined, { now: at(0), onHold: false });
  expect(step.next).toMatch(next);
});

test('e-mails that the relay did not take are shown as tried', () => {
  expect(mailsInWords(ledgerOf(...logins))).toBe('25 tried, none handed over');
  expect(mailsInWords(ledgerOf(...logins, accepted))).toBe('26 tried, 1 handed over');
  expect(mailsInWords(ledgerOf(accepted))).toBe('1 handed over');
});

test('an outage is one line with its cause, count and end', () => {
  const record = { history: [], state: 'completed' } as unknown as SubmissionRecord;
  const account = { mail: ledgerOf(...logins, accepted) } as unknown as Account;
  expect(timeline(record, account, [])).toEqual([
    {
      at: at(0),
      look: 'mail not taken',
      what: 'e-mail tried: the relay refuses our login (EAUTH AUTH PLAIN 535)',
      times: 25,
      until: at(24),
    },
    { at: at(25), look: 'mail', what: expect.stringContaining('accepted (250) after') },
  ]);
});

test('the words of the relay stand in the timeline, and of a run those of the last', () => {
  const refused = (answer: string) =>
    ({ result: 'refused', phase: 'rcpt', code: 450, answer }) as const;
  const record = { history: [], state: 'account_created' } as unknown as SubmissionRecord;
  const told = (...endings: ReturnType<typeof refused>[]) =>
    timeline(record, { mail: ledgerOf(...endings) } as unknown as Account, [])[0];
  const what = 'e-mail tried: the mail server answered 450 at rcpt';
  expect(told(refused('450 busy\r\n\u001b[1m'))).toMatchObject({
    what: `${what} after 0 ms`,
    said: ', "450 busy \u{fffd}[1m"',
  });
  expect(told(refused('450 wait 9 s'), refused('450 wait 8 s'))).toMatchObject({
    what,
    said: ', "450 wait 8 s"',
  });
});

test('states stand in order although the second clock was behind', () => {
  const history = [
    { state: 'recorded', at: at(1), attempt: 0 },
    { state: 'account_created', at: at(0), attempt: 1 },
  ];
  const record = { history, httpStatus: 202 } as unknown as SubmissionRecord;
  expect(timeline(record, undefined, []).map(({ what }) => what)).toEqual([
    'recorded, answered 202',
    'account created',
  ]);
});

test('an e-mail stands behind its account although the clock of its process was behind', () => {
  const history = [
    { state: 'recorded', at: at(1), attempt: 0 },
    { state: 'account_created', at: at(2), attempt: 1 },
    { state: 'completed', at: at(0), attempt: 1 },
  ];
  const record = { history, httpStatus: 202 } as unknown as SubmissionRecord;
  const account = { mail: ledgerOf(accepted) } as unknown as Account;
  expect(timeline(record, account, []).map(({ what }) => what)).toEqual([
    'recorded, answered 202',
    'account created',
    expect.stringContaining('accepted (250)'),
    expect.stringContaining('completed'),
  ]);
});

test.each([
  [1_500, ' after 500 ms'],
  // It began before the account was noted: longer than the time since then.
  [900, ''],
])('an e-mail begun at %i ms of which the account is at 1000 ms took%s', (startedMs, took) => {
  const time = (ms: number): Date => new Date(START + ms);
  const history = [
    { state: 'recorded', at: time(0), attempt: 0 },
    { state: 'account_created', at: time(1_000), attempt: 1 },
  ];
  const record = { history, httpStatus: 202 } as unknown as SubmissionRecord;
  const ending = { ...accepted, startedAt: time(startedMs), endedAt: time(startedMs + 500) };
  const account = { mail: ledgerOf(ending) } as unknown as Account;
  const told = timeline(record, account, []).map(({ what }) => what);
  expect(told.at(-1)).toBe(`e-mail handed to the mail server: accepted (250)${took}`);
});

test('each reason has people’s words, and one of another version its name', () => {
  for (const code of partnerReasonCodes)
    for (const { name: field } of Object.values(bodyFields)) {
      expect(reasonInWords({ field, code })).toMatch(/^[A-Z][^_:@]+$/);
      expect(reasonInWords({ field, code })).not.toBe(reasonName({ field, code }));
    }
  expect(
    [
      ['ein', 'invalid_format'],
      ['email', 'invalid_format'],
      ['business_name', 'blank'],
      [undefined, 'duplicate'],
      ['phone', 'later'],
      [undefined, 'missing'],
    ].map(([field, code = '']) => reasonInWords({ field, code })),
  ).toEqual([
    'EIN without nine digits',
    'E-mail address not valid',
    'Business name without a letter or digit',
    'Applicant has an account already',
    'phone: later',
    'missing',
  ]);
});

test('an error of an earlier attempt is no reason of a completed request', () => {
  const lastError = 'the mail server could not be used (EAUTH AUTH PLAIN 535)';
  expect(errorOf({ state: 'completed', lastError })).toBeUndefined();
  expect(errorOf({ state: 'dead_lettered', lastError })).toBe(
    'the relay refuses our login (EAUTH AUTH PLAIN 535)',
  );
});

test('a malformed body shows its shape and no personal data', () => {
  expect(maskText('{"email": "Zoë@example.com", "ein":12-3456789,\u001b')).toBe(
    '{"email": "xxx@xxxxxxx.xxx", "ein":99-9999999,\u{fffd}',
  );
});
