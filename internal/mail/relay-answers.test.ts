import { expect, test } from '@jest/globals';
import { knownAnswers } from '../../test/support/known-answers.ts';
import { CODES, refusalOf, type Refusal } from './relay-answers.ts';

const faultOfAnswer = (phase: Refusal['phase'], answer: string) =>
  refusalOf(phase, Number(CODES.exec(answer)?.[1]), answer).fault;

test.each(
  knownAnswers.map(({ relay, phase, answer, fault }) => [relay, phase, answer, fault] as const),
)('%s at %s, %s: %s', (_relay, phase, answer, fault) => {
  expect(faultOfAnswer(phase, answer)).toBe(fault);
});

test.each([
  ['a status of the network', '550 5.4.1 no answer from host', 'rcpt'],
  ['a policy without a status', '550 Message refused by the policy of this site', 'rcpt'],
  ['spam', '550 5.2.1 Looks like spam', 'rcpt'],
  ['the content', '550 5.6.0 malformed', 'content'],
] as const)('%s blames no recipient', (_name, answer, phase) => {
  expect(faultOfAnswer(phase, answer)).toBe('ours');
});

test.each([
  ['an address before RCPT', '550 5.1.1 unknown', 'mail', 'sender'],
  [
    'a table of relay domains',
    '550 5.1.1 User unknown in relay recipient table',
    'rcpt',
    'recipient',
  ],
  ['an address that holds a word', '550 <policy@spam.example>: no such user', 'rcpt', 'recipient'],
  [
    'an unknown user after the content',
    '554 This user has no mailbox: unknown user',
    'content',
    'recipient',
  ],
  ['greylisting with a status of policy', '450 4.7.1 Greylisted for 300 seconds', 'rcpt', 'busy'],
  ['a mailbox over its limit', '452 4.2.2 quota exceeded', 'rcpt', 'busy'],
] as const)('%s is read as an answer about its true subject', (_name, answer, phase, fault) => {
  expect(faultOfAnswer(phase, answer)).toBe(fault);
});
