import { expect, test } from '@jest/globals';
import { failureOf, saidBy } from './server-words.ts';

const LOGIN = Buffer.from('\0anna\0hunter2').toString('base64');

/** What must not be logged is `anna`, `hunter2` or the login. */
test.each([
  // A relay without AUTH, to which the mail library sends its login all the same.
  [`Invalid login: 500 5.5.1 Command unrecognized: "AUTH PLAIN ${LOGIN}"`, 'Command unrecognized'],
  [`Invalid login: 500 unrecognized command: AUTH LOGIN ${LOGIN}`, 'unrecognized command'],
  [`Invalid login: 501 Syntax error in AUTH PLAIN ${LOGIN}`, 'Syntax error in AUTH PLAIN'],
  [`Invalid login: 500 5.5.1 Command unrecognized: "${LOGIN}"`, 'Command unrecognized'],
  ['bad URI mongodb://anna:hun ter2@db:27017, or more hunter2@db', 'bad URI mongodb://'],
  ['550 5.1.1 <"anna smith"@a.example>: no such mailbox', '550 5.1.1'],
  ['550 5.1.1 <sales/anna@a.example>: no such mailbox', 'no such mailbox'],
  ['no route for anna%40a.example', 'no route for'],
  ['password "hunter2" is wrong', 'password'],
  ["the user 'anna' lacks a right", 'lacks a right'],
  ['sent "access_token":"hunter2", "user": "anna smith" and api-key=hunter2', 'sent'],
  ['new row violates a check DETAIL: Failing row contains (7, anna)', 'new row violates a check'],
  ['in { a: 1 } before {"name": "anna', 'in {…}'],
])('a message that quotes a person or a login says the rest: %s', (message, kept) => {
  const said = saidBy(new Error(message));
  expect(said).toContain(kept);
  expect(said).not.toMatch(/anna|hunter2|ter2/);
  expect(said).not.toContain(LOGIN);
});

test.each([
  'connect ECONNREFUSED 10.0.0.1:27017',
  'WRONGPASS invalid username-password pair or user is disabled.',
  'ERR unknown command `sentinel`',
  '504 5.7.4 Unrecognized authentication type',
  '503 AUTH command used when not advertised',
])('a message that quotes nobody is whole: %s', (message) => {
  expect(saidBy(new Error(message))).toBe(`Error: ${message}`);
});

test.each([
  ['certificate_ended', 'certificate has expired', 'CERT_HAS_EXPIRED'],
  ['certificate_file', 'error:0480006C:PEM routines::no start line', 'ERR_OSSL_PEM_NO_START_LINE'],
  ['certificate_file', 'x509 …::key values mismatch', 'ERR_OSSL_X509_KEY_VALUES_MISMATCH'],
  ['certificate_untrusted', 'self-signed certificate', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ['no_route', 'connect EPERM 10.0.0.1:27017', 'EPERM'],
  ['no_route', 'connect EADDRNOTAVAIL ::1:6379', 'EADDRNOTAVAIL'],
  ['file_unreadable', "EACCES: permission denied, open '/tls/ca.pem'", 'EACCES'],
  ['socks_refuses', 'Socks5 proxy rejected connection - NotAllowed', 'ERR'],
  ['socks_refuses', 'Socks5 Authentication failed', 'ERR'],
])('%s: %s', (code, message, of) => {
  expect(failureOf(Object.assign(new Error(message), { code: of })).code).toBe(code);
});

test('a transaction that Redis did not begin is told by the command that it refused', () => {
  const previousErrors = [new Error("NOPERM User app has no permissions to run the 'set' command")];
  const error = Object.assign(new Error('EXECABORT Transaction discarded'), { previousErrors });
  expect(failureOf(error)).toMatchObject({ code: 'right_missing', told: 'NOPERM' });
  expect(saidBy(error)).toContain("the 'set' command");
});
