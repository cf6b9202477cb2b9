import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { knownAnswers } from '../../test/support/known-answers.ts';
import { read } from '../../test/support/pages.ts';
import {
  CODES,
  describeFailure,
  outcomeOf,
  reasonOf,
  refusalOf,
  type HandOver,
  type Refusal,
  type RefusalClass,
} from './relay-answers.ts';

const classOfAnswer = (phase: Refusal['phase'], answer: string) =>
  refusalOf(phase, Number(CODES.exec(answer)?.[1]), answer).failure;

test.each(knownAnswers)('$relay at $phase, $answer: $failure', ({ phase, answer, failure }) => {
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

const { classes, reasons } = parse(read('test/support/refused-answers.yaml')) as {
  readonly classes: [phase: Refusal['phase'], answer: string, failure: RefusalClass][];
  readonly reasons: Readonly<Record<string, string>>;
};

test.each(classes)('at %s, %s: %s', (phase, answer, failure) => {
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

test.each(Object.entries(reasons))('%s: a partner learns %s', (answer, why) => {
  const refusal = refusalOf('rcpt', Number(answer.slice(0, 3)), answer);
  expect(refusal).toMatchObject({ failure: 'permanent', why });
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
const rcpt550 = (words: string): HandOver => ({
  result: 'refused',
  ...refusalOf('rcpt', 550, `550${words}`),
});
const said = (answer: string) => ({ phase: 'rcpt', code: 550, answer: `550${answer}` });

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
    rcpt550(`-5.1.1 <Ann.Lee@example.com>\n${LONG}`),
    { ...said(`-5.1.1 …\n${LONG}`.slice(0, 297)), enhancedCode: '5.1.1' },
  ],
  [rcpt550(' ann.lee+home: unknown'), said(' …: unknown')],
  [rcpt550(' no ANN.LEE here'), said(' no … here')],
  [rcpt550(' ann.lee%40example.com'), said(' …%40example.com')],
  [rcpt550(' (ann.lee)'), said(' (…)')],
  [
    { result: 'unreachable', connected: false, cause: 'ESOCKET CONN' },
    { phase: 'connect', cause: 'ESOCKET CONN' },
  ],
  [{ result: 'aborted', cause: 'claim lost' }, { cause: 'claim lost' }],
])('%j stands in the ledger as %j', (handedOver, details) => {
  const email = 'ann.lee+home@example.com';
  expect(outcomeOf(handedOver, email)).toEqual({ result: handedOver.result, ...details });
});
