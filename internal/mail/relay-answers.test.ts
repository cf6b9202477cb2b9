import { expect, test } from '@jest/globals';
import { knownAnswers } from '../../test/support/known-answers.ts';
import {
  CODES,
  describeFailure,
  outcomeOf,
  reasonOf,
  refusalOf,
  type HandOver,
  type Refusal,
} from './relay-answers.ts';

const classOfAnswer = (phase: Refusal['phase'], answer: string) =>
  refusalOf(phase, Number(CODES.exec(answer)?.[1]), answer).failure;

test.each(
  knownAnswers.map(({ relay, phase, answer, failure }) => [relay, phase, answer, failure] as const),
)('%s at %s, %s: %s', (_relay, phase, answer, failure) => {
  expect(classOfAnswer(phase, answer)).toBe(failure);
});

test('each system has answers that are final, and ones that are not', () => {
  const systems = Map.groupBy(knownAnswers, ({ relay }) => relay);
  expect(systems.size).toBeGreaterThanOrEqual(20);
  for (const [relay, answers] of systems) {
    const final = answers.filter(({ failure }) => failure === 'permanent').length;
    expect([relay, answers.length >= 6, answers.length > final]).toEqual([relay, true, true]);
  }
});

test.each([
  // Of the network, of a policy, of the content: none is about the recipient.
  ['rcpt', '550 5.4.1 no answer from host', 'ours'],
  ['rcpt', '550 Message refused by the policy of this site', 'ours'],
  ['rcpt', '550 5.2.1 Looks like spam', 'ours'],
  ['content', '550 5.6.0 malformed', 'ours'],
  // A code or a status alone that may be about us.
  ['rcpt', '550 no answer that says more', 'ours'],
  ['rcpt', '556 no mail here', 'ours'],
  ['rcpt', '550 5.2.1', 'ours'],
  ['rcpt', '550 5.2.122', 'busy'],
  ['rcpt', '550 5.2.3 message too long for it', 'ours'],
  ['rcpt', '550 5.1.0 Address rejected', 'ours'],
  ['rcpt', '535 5.1.1 user unknown', 'ours'],
  // What is about the recipient by its status is not, if its words are about us or a later time.
  ['rcpt', '550 5.1.1 Sender address rejected: user unknown', 'ours'],
  ['rcpt', '550 5.1.1 Your account is not found', 'ours'],
  ['rcpt', '550 5.1.1 try again later', 'busy'],
  ['rcpt', '550 5.1.1 <a@b.example>: Recipient address rejected: Quota of the sender', 'ours'],
  // Advice for people is no later time.
  ['rcpt', '550 5.1.1 no such user, please check the address and try again', 'permanent'],
  // Words and codes that also stand in other answers.
  ['mail', '550 5.1.1 unknown', 'relay'],
  ['rcpt', '550 5.1.1 User unknown in relay recipient table', 'permanent'],
  ['rcpt', '550 <policy@spam.example>: no such user', 'permanent'],
  ['rcpt', '550 mx.spam.example said: no such user', 'permanent'],
  ['rcpt', '550 No such user.See https://help.example/blocked', 'permanent'],
  ['rcpt', '550 sorry, no such mailbox (#5.1.1)', 'permanent'],
  ['content', '554 This user has no mailbox: unknown user', 'permanent'],
  ['rcpt', '450 4.7.1 Greylisted for 300 seconds', 'busy'],
  ['rcpt', '452 4.2.2 quota exceeded', 'busy'],
] as const)('at %s, %s: %s', (phase, answer, failure) => {
  expect(classOfAnswer(phase, answer)).toBe(failure);
});

// A pattern that backtracks without bound would hang here.
test.each(['unknown ', 'user ', 'a.', 'try ', 'mailbox exceeded ', 'x@', 'your ', "'", 'not '])(
  'of an answer with a million times %j only the beginning is read',
  (part) => {
    const { answer } = refusalOf('rcpt', 550, `550 ${part.repeat(1_000_000)}`);
    expect(answer.length).toBeLessThanOrEqual(1_000);
  },
);

test.each([
  ['550 5.1.1 unknown', 'unknown_mailbox'],
  ['554 This user has no mailbox: unknown user', 'unknown_mailbox'],
  ['550 5.1.10 Recipient not found', 'unknown_mailbox'],
  ['550 5.7.1 user unknown', 'unknown_mailbox'],
  ['550 5.1.2 bad destination system', 'domain_refused'],
  ['556 5.1.10 recipient address has a null MX', 'domain_refused'],
  ['556 Domain does not accept mail', 'domain_refused'],
  ['550 Unrouteable address', 'domain_refused'],
  ['550 5.2.1 mailbox disabled', 'mailbox_disabled'],
  ['550 This mailbox is inactive', 'mailbox_disabled'],
  ['552 5.2.2 mailbox full', 'mailbox_full'],
  ['552 mailbox is full', 'mailbox_full'],
] as const)('%s: a partner learns %s', (answer, why) => {
  expect(refusalOf('rcpt', Number(answer.slice(0, 3)), answer)).toMatchObject({
    failure: 'permanent',
    why,
  });
});

test('a later bounce has a reason by its status, and only a recipient is blamed', () => {
  expect(['5.1.1', '5.7.1', '4.4.7', undefined].map((status) => reasonOf(status))).toEqual([
    'unknown_mailbox',
    'policy',
    'refused',
    'refused',
  ]);
  expect(refusalOf('rcpt', 550, '550 5.7.1 blocked by policy')).not.toHaveProperty('why');
});

const smtpError = (fields: object): Error =>
  Object.assign(new Error('550 someone@example.com is unknown'), fields);

test('after the content an answer with an error is a refusal, and silence is ambiguous', () => {
  const answered = smtpError({ code: 'EMESSAGE', responseCode: 451 });
  expect(describeFailure(answered, 'content')).toMatchObject({ result: 'refused', code: 451 });
  const silent = smtpError({ code: 'ECONNECTION' });
  expect(describeFailure(silent, 'content')).toEqual({
    result: 'ambiguous',
    cause: 'ECONNECTION',
  });
});

test.each([
  [{ code: 'EAUTH', command: 'AUTH PLAIN', responseCode: 535 }, 'EAUTH AUTH PLAIN 535', 'refused'],
  [{ code: 'ETLS', command: 'STARTTLS', responseCode: 554 }, 'ETLS STARTTLS 554', 'refused'],
  [{ code: 'EPROTOCOL', command: 'CONN', responseCode: 554 }, 'EPROTOCOL CONN 554', 'refused'],
  [{ code: 'EPROTOCOL', command: 'CONN', responseCode: 421 }, 'EPROTOCOL CONN 421', 'no_capacity'],
  [{}, 'Error', 'unreachable'],
])('a failure before the envelope concerns all e-mails: %j', (fields, cause, reason) => {
  const error = smtpError(fields);
  expect(describeFailure(error, 'connecting')).toEqual({
    result: 'unreachable',
    connected: false,
    cause,
    outage: { reason, error },
  });
});

test('from the envelope on no error quotes the server, because its answer may hold the address', () => {
  const response = '550 someone@example.com is unknown';
  for (const progress of ['connected', 'content'] as const)
    for (const fields of [{ code: 'EENVELOPE', command: 'RCPT TO', responseCode: 550 }, {}])
      expect(
        JSON.stringify(describeFailure(smtpError({ ...fields, response }), progress)),
      ).not.toContain('someone');
});

const LONG = 'planned words, and '.repeat(40);

test.each<[HandOver, object]>([
  [
    { result: 'accepted', answer: '250 2.0.0 Ok: queued as 4ABC for <ann@example.com>' },
    {
      phase: 'answered',
      code: 250,
      enhancedCode: '2.0.0',
      answer: '250 2.0.0 Ok: queued as 4ABC for …',
    },
  ],
  [
    { result: 'refused', ...refusalOf('rcpt', 550, `550-5.1.1 <Ann.Lee@example.com>\n${LONG}`) },
    {
      phase: 'rcpt',
      code: 550,
      enhancedCode: '5.1.1',
      answer: `550-5.1.1 …\n${LONG}`.slice(0, 300),
    },
  ],
  ...['ann.lee+home: unknown', 'no ANN.LEE here', 'ann.lee%40example.com', '(ann.lee)'].map(
    (words): [HandOver, object] => [
      { result: 'refused', ...refusalOf('rcpt', 550, `550 ${words}`) },
      {
        phase: 'rcpt',
        code: 550,
        answer: `550 ${words.replace(/ann\.lee(\+home)?/i, '…')}`,
      },
    ],
  ),
  [
    { result: 'unreachable', connected: false, cause: 'ESOCKET CONN' },
    { phase: 'connect', cause: 'ESOCKET CONN' },
  ],
  [{ result: 'aborted', cause: 'claim lost' }, { cause: 'claim lost' }],
])('%j stands in the ledger as %j', (handedOver, details) => {
  const email = 'ann.lee+home@example.com';
  expect(outcomeOf(handedOver, email)).toEqual({ result: handedOver.result, ...details });
});
