/** Distinguishes one person's records from those of others, and masks what it shows. */
import { expect, test } from '@jest/globals';
import { Binary } from 'mongodb';
import { maskEin, maskEmail, maskName } from '../../application/fields.ts';
import { relationOf, type Relation } from './erase.ts';

const person = { email: 'jane+x@example.com', ein: '123456789' };

const jane = { email: person.email };
const janes = { ein: person.ein };
const joe = { email: 'joe@example.com', ein: '000000001', businessName: 'Joe' };
const tested = { ein: joe.ein };
const bytes = (text: string) => new Binary(Buffer.from(text));
const naming = bytes(`{"contact":"${jane.email}","number":${janes.ein}}`);

type Given = Parameters<typeof relationOf>;
test.each<[string, ...Given, Relation]>([
  ['of her address', jane, { applicant: { email: jane.email } }, 'applicant'],
  ['without an applicant, whose bytes name her', jane, { body: naming }, 'applicant'],
  ["of another's, whose bytes name her", jane, { applicant: joe, body: naming }, 'mentioned'],
  ['of another, without bytes', jane, { applicant: joe }, 'none'],
  ['that waits', jane, { body: bytes('{"email":" JANE+x@example.com","ein":"9"}') }, 'applicant'],
  ['with an EIN as number', janes, { applicant: { email: joe.email }, body: naming }, 'applicant'],
  ['with an EIN in words', janes, { applicant: { ...joe, ein: 'ein 12-3456789' } }, 'applicant'],
  ['of a live application', tested, { applicant: joe }, 'applicant'],
  ['of a test that its EIN ends', tested, { test: true, applicant: joe }, 'none'],
  ['of a test that waits', tested, { test: true, body: bytes(`{"ein":"${joe.ein}"}`) }, 'none'],
])('a record %s', (_what, whom, record, relation) => {
  expect(relationOf(whom, record)).toBe(relation);
});

test.each([
  ['jane@example.com', 'j***@e***.com'],
  ['no address', 'n***'],
  ['', '***'],
  ['\u001b[2J@x.example', '�***@x***.example'],
])('e-mail %j is shown as %s', (email, shown) => {
  expect(maskEmail(email)).toBe(shown);
});

test('EIN and name', () => {
  expect([maskEin('123456789'), maskEin('12-3'), maskEin('')]).toEqual(['*****6789', '***', '***']);
  expect([maskName(' Ada Ltd'), maskName('😀 GmbH')]).toEqual(['A***', '😀***']);
});
