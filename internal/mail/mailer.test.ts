/** Classifies nodemailer's errors; test/integration/mail-faults.test.ts uses a real server. */
import { expect, test } from '@jest/globals';
import { describeFailure } from './mailer.ts';

const smtpError = (fields: object): Error =>
  Object.assign(new Error('550 someone@example.com is unknown'), fields);

test.each([
  [{ code: 'EENVELOPE', command: 'MAIL FROM' }, 'connected', 'mail'],
  // nodemailer does not name RCPT among pipelined commands.
  [{ code: 'ECONNECTION', command: 'CONN' }, 'connected', 'rcpt'],
  [{ code: 'ECONNECTION', command: 'CONN' }, 'content', 'content'],
] as const)('%j with 421 when %s is refused at %s', (fields, progress, phase) => {
  const error = smtpError({ ...fields, responseCode: 421, response: '421 4.3.2 closing' });
  expect(describeFailure(error, progress)).toMatchObject({
    result: 'refused',
    phase,
    code: 421,
    enhancedCode: '4.3.2',
    fault: 'capacity',
  });
});

test('after the content an error answer is a refusal, and no answer is ambiguous', () => {
  expect(
    describeFailure(smtpError({ code: 'EMESSAGE', responseCode: 451 }), 'content'),
  ).toMatchObject({
    result: 'refused',
    phase: 'content',
    code: 451,
  });
  expect(describeFailure(smtpError({ code: 'ECONNECTION' }), 'content')).toEqual({
    result: 'ambiguous',
    cause: 'ECONNECTION',
  });
  expect(describeFailure(smtpError({ code: 'ETIMEDOUT' }), 'content')).toMatchObject({
    result: 'ambiguous',
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
  for (const progress of ['connected', 'content'] as const) {
    for (const fields of [
      { code: 'EENVELOPE', command: 'MAIL FROM', responseCode: 550 },
      { code: 'EENVELOPE', command: 'RCPT TO', responseCode: 550 },
      { code: 'EAUTH' },
      {},
    ]) {
      const error = smtpError({ ...fields, response: '550 someone@example.com is unknown' });
      expect(JSON.stringify(describeFailure(error, progress))).not.toContain('someone');
    }
  }
  expect(JSON.stringify(describeFailure('someone@example.com', 'connected'))).not.toContain(
    'someone',
  );
});
