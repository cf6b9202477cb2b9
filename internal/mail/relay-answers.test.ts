import { expect, test } from '@jest/globals';
import { CODES, faultOf, knownAnswers, refusalOf, type Refusal } from './relay-answers.ts';

const faultOfAnswer = (phase: Refusal['phase'], answer: string) =>
  faultOf(refusalOf(phase, Number(CODES.exec(answer)?.[1]), answer));

test.each(knownAnswers.map(({ relay, phase, answer, fault }) => [relay, phase, answer, fault] as const))(
  '%s at %s, %s: %s',
  (_relay, phase, answer, fault) => {
    expect(faultOfAnswer(phase, answer)).toBe(fault);
  },
);

test.each([
  ['a code without a status', '550 Requested action not taken', 'rcpt'],
  ['a status of the network', '550 5.4.1 no answer from host', 'rcpt'],
  ['a policy', '550 5.7.1 blocked', 'rcpt'],
  ['the content', '550 5.6.0 malformed', 'content'],
  ['an address before RCPT', '550 5.1.1 unknown', 'mail'],
] as const)('%s blames no recipient', (_name, answer, phase) => {
  expect(faultOfAnswer(phase, answer)).toBe('ours');
});

test("a sender that Exim cannot route to is not the recipient's fault", () => {
  const lines = [
    '550-Verification failed for <service@partner.example>',
    '550-Unrouteable address',
    '550 Sender verify failed',
  ];
  expect(faultOfAnswer('rcpt', lines.join('\n'))).toBe('ours');
});

test('the answer of several lines counts as one', () => {
  expect(faultOfAnswer('rcpt', '550-5.1.1 The account\n550 5.1.1 does not exist')).toBe('recipient');
});
