/** Notifications as mail servers write them, in the form of RFC 3464's own examples and of Postfix and Exchange. */
import { expect, test } from '@jest/globals';
import { readDeliveryStatus } from './delivery-status.ts';

const ID = '<acc_01m7yppxy4e01v3gzvkymsa33d.login-instructions.2@partner.example>';

/** `parts` stand for the delivery status and for the returned mail. */
function notification(
  report: string,
  returned = `Message-ID: ${ID}\nSubject: x`,
  type = 'text/rfc822-headers',
): string {
  return [
    'From: MAILER-DAEMON@relay.example',
    'Subject: Undelivered Mail Returned to Sender',
    'Message-ID: <of-the-notification@relay.example>',
    'Content-Type: multipart/report; report-type=delivery-status;',
    '\tboundary="B/=1"',
    '',
    'This is a MIME-encapsulated message.',
    '',
    '--B/=1',
    'Content-Type: text/plain',
    '',
    'I am sorry. Action: delivered',
    '',
    '--B/=1',
    'Content-Description: Delivery report',
    'Content-Type: message/delivery-status',
    '',
    report,
    '',
    '--B/=1',
    `Content-Type: ${type}`,
    '',
    returned,
    '',
    '--B/=1--',
    '',
  ].join('\n');
}

const postfix = `Reporting-MTA: dns; relay.example
X-Postfix-Queue-ID: 4ABC

Final-Recipient: rfc822; jane@example.com
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1
    <jane@example.com> unknown`;

test.each([
  ['Postfix, headers only', notification(postfix)],
  ['the whole mail', notification(postfix, `Received: by x\nMessage-ID: ${ID}\nSubject: x\n\nHello`, 'message/rfc822')],
  ['lines that end with CR LF', notification(postfix).replaceAll('\n', '\r\n')],
  ['a mailbox line before it', `From MAILER-DAEMON Sun Nov 22 05:00:00 2026\n${notification(postfix)}`],
  ['a folded Message-ID', notification(postfix, `Message-Id:\n ${ID}\nSubject: x`)],
  ['a boundary without quotes', notification(postfix).replaceAll('B/=1', 'B1').replace('"B1"', 'B1')],
  ['a remark behind the action', notification(postfix.replace('failed', 'Failed (bad mailbox)'))],
  [
    'the failed one of two recipients',
    notification(`${postfix.replace('failed', 'delayed').replace('5.1.1', '4.4.1')}\n\n${postfix.split('\n\n')[1]}`),
  ],
])('a failure: %s', (_name, source) => {
  expect(readDeliveryStatus(source)).toEqual({ action: 'failed', status: '5.1.1', messageId: ID });
});

test('a delay is told from a failure', () => {
  expect(
    readDeliveryStatus(notification(postfix.replace('failed', 'delayed').replace('5.1.1', '4.4.1'))),
  ).toMatchObject({
    action: 'delayed',
    status: '4.4.1',
  });
});

test('the mail of someone else, and one without a status', () => {
  expect(readDeliveryStatus(notification(postfix, 'Message-ID: <other@x.example>'))).toEqual({
    action: 'failed',
    status: '5.1.1',
  });
  expect(
    readDeliveryStatus(notification('Reporting-MTA: dns; x\n\nAction: failed\nStatus: what', 'Subject: x')),
  ).toEqual({
    action: 'failed',
  });
});

test.each([
  ['nothing', ''],
  ['an ordinary mail', 'Content-Type: text/plain\n\nAction: failed\nStatus: 5.1.1\n'],
  ['a read receipt', notification(postfix).replace('message/delivery-status', 'message/disposition-notification')],
  ['a report without a recipient', notification('Reporting-MTA: dns; x')],
  ['a report without a boundary', 'Content-Type: multipart/report\n\nx'],
  ['spaces without end', `Content-Type: multipart/report; boundary=x\n${'\n \t'.repeat(50_000)}`],
])('%s is no notification', (_name, source) => {
  expect(readDeliveryStatus(source)).toBeUndefined();
});
