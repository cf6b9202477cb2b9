/**
 * What mail systems write when a mail comes back, each in the form that is its own, in few words.
 */

/** The mail that came back. */
export interface Returned {
  readonly messageId: string;
  readonly recipient: string;
  /** By which the relay took it. */
  readonly relaysId: string;
}

type Write = (mail: Returned) => string;

const lines = (...all: readonly string[]): string => all.join('\r\n');

function headersOf({ messageId, recipient }: Returned): string {
  return lines(
    'From: Example Capital <accounts@partner.example>',
    `To: ${recipient}`,
    'Subject: Your account is ready: how to log in',
    `Message-ID: ${messageId}`,
  );
}

function multipart(kind: string, headers: string, ...parts: readonly string[]): string {
  return lines(
    headers,
    'MIME-Version: 1.0',
    `Content-Type: multipart/${kind}; boundary="=_b/1:${kind}"`,
    '',
    'This is a MIME-encapsulated message.',
    ...parts.flatMap((part) => ['', `--=_b/1:${kind}`, part]),
    '',
    `--=_b/1:${kind}--`,
    '',
  );
}

const daemon = (name: string, subject: string): string =>
  lines(
    `From: ${name}`,
    'To: accounts@partner.example',
    `Subject: ${subject}`,
    'Message-ID: <1@mx.example>',
  );
const part = (type: string, ...text: readonly string[]): string =>
  lines(`Content-Type: ${type}`, '', ...text);
const encoded = (type: string, encoding: 'base64' | 'quoted-printable', text: string): string =>
  lines(
    `Content-Type: ${type}`,
    `Content-Transfer-Encoding: ${encoding}`,
    '',
    encoding === 'base64'
      ? Buffer.from(text)
          .toString('base64')
          .replaceAll(/.{1,76}/g, '$&\r\n')
      : text.replaceAll('=', '=3D').replaceAll(/([^\r\n]{70})(?=[^\r\n])/g, '$1=\r\n'),
  );

const fields = ({ recipient }: Returned, action = 'failed', status = '5.1.1'): string =>
  lines(
    'Reporting-MTA: dns; mx.example',
    '',
    `Final-Recipient: rfc822; ${recipient}`,
    `Action: ${action}`,
    `Status: ${status}`,
    `Diagnostic-Code: smtp; 550 ${status}`,
    `    <${recipient}> unknown`,
  );
const STATUS = 'message/delivery-status';

const POSTFIX = 'MAILER-DAEMON@mx.example (Mail Delivery System)';
const postfix = (report: string, returned: string): string =>
  multipart(
    'report; report-type=delivery-status',
    daemon(POSTFIX, 'Undelivered Mail Returned to Sender'),
    part('text/plain', 'I am sorry. Action: delivered'),
    part(STATUS, report),
    returned,
  );

const BUILT = 'Mail Delivery System <Mailer-Daemon@mx.example>';

/** Each says that the mail did not arrive, for 5.1.1, and names it by our Message-ID. */
export const failures: Readonly<Record<string, Write>> = {
  Postfix: (mail) => postfix(fields(mail), part('message/rfc822', headersOf(mail), '', 'Hello')),
  'Postfix, after a delay of another recipient': (mail) =>
    postfix(
      lines(
        fields({ ...mail, recipient: 'bob@example.com' }, 'delayed', '4.4.1'),
        '',
        fields(mail),
      ),
      part('message/rfc822', headersOf(mail)),
    ),
  'global, for internationalised mail': (mail) =>
    postfix('', part('message/global-headers', headersOf(mail))).replace(
      `${STATUS}\r\n\r\n`,
      `message/global-delivery-status\r\n\r\n${fields(mail)}`,
    ),
  'Exim, text alone': (mail) =>
    lines(
      `X-Failed-Recipients: ${mail.recipient}`,
      'Auto-Submitted: auto-replied',
      daemon(BUILT, 'Mail delivery failed: returning message to sender'),
      '',
      'A message that you sent could not be delivered to one or more of its recipients.',
      'This is a permanent error. The following address(es) failed:',
      '',
      `  ${mail.recipient}`,
      `    host mx.example [192.0.2.1]: 550 5.1.1 <${mail.recipient}>: User unknown`,
      '',
      '------ This is a copy of the message, including all the headers. ------',
      '',
      headersOf(mail),
      '',
      'Hello',
    ),
  'Exchange Online, without a report': (mail) =>
    multipart(
      'alternative',
      lines(
        'Return-Path: <>',
        daemon('postmaster@outlook.example', 'Undeliverable: Your account is ready'),
      ),
      encoded(
        'text/html; charset="utf-8"',
        'quoted-printable',
        `<p>Remote Server returned '550 5.1.1 no'</p><p>Original message headers:</p><pre>${headersOf(
          mail,
        )
          .replaceAll('<', '&lt;')
          .replaceAll('>', '&gt;')}</pre>`,
      ),
    ),
  Gmail: (mail) =>
    multipart(
      'report; report-type=delivery-status',
      lines(
        `References: ${mail.messageId}`,
        `In-Reply-To: ${mail.messageId}`,
        `X-Failed-Recipients: ${mail.recipient}`,
        daemon(
          'Mail Delivery Subsystem <mailer-daemon@googlemail.com>',
          'Delivery Status Notification (Failure)',
        ),
      ),
      part('text/plain', '** Address not found **'),
      part(STATUS, fields(mail)),
    ),
  'a person who forwards it': (mail) =>
    multipart(
      'mixed',
      daemon('Ann <ann@partner.example>', 'Fwd: Undelivered Mail'),
      part('text/plain', 'What now?'),
      part('message/rfc822', postfix(fields(mail), part('message/rfc822', headersOf(mail)))),
    ),
  'parts in base64': (mail) =>
    multipart(
      'report',
      daemon(POSTFIX, 'Undelivered'),
      encoded(STATUS, 'base64', fields(mail)),
      encoded('message/rfc822', 'base64', headersOf(mail)),
    ),
  'out of a mailbox file': (mail) =>
    `From MAILER-DAEMON Sun Nov 22 05:00:00 2026\n${postfix(fields(mail), part('message/rfc822', headersOf(mail)))}`,
};

/** Amazon SES gives a mail a Message-ID of its own. */
export const amazonSes: Write = (mail) =>
  multipart(
    'report; report-type=delivery-status',
    lines(
      `X-Original-To: ${mail.relaysId}@eu-west-1.amazonses.com`,
      daemon('MAILER-DAEMON@amazonses.com', 'Delivery Status Notification (Failure)'),
    ),
    part(
      'text/plain',
      'An error occurred while trying to deliver the mail to the following recipients:',
      mail.recipient,
    ),
    part(
      STATUS,
      'Reporting-MTA: dns; a1-2.smtp-out.eu-west-1.amazonses.com',
      '',
      'Action: failed',
      `Final-Recipient: rfc822; ${mail.recipient}`,
      'Diagnostic-Code: smtp; 550 5.1.1 user unknown',
      'Status: 5.0.0',
    ),
    part(
      'message/rfc822',
      headersOf({ ...mail, messageId: `<${mail.relaysId}@eu-west-1.amazonses.com>` }),
    ),
  );

/** Postfix returns headers that somebody has rewritten; its own queue id is in the report. */
export const queueIdOnly: Write = (mail) =>
  postfix(
    fields(mail).replace('\r\n\r\n', `\r\nX-Postfix-Queue-ID: ${mail.relaysId}\r\n\r\n`),
    part('text/rfc822-headers', `To: ${mail.recipient}`),
  );

/** None of them says that our mail failed. */
export const noFailures: Readonly<Record<string, Write>> = {
  delayed: (mail) =>
    postfix(fields(mail, 'delayed', '4.4.1'), part('message/rfc822', headersOf(mail))),
  'delayed, in words': (mail) =>
    lines(
      `X-Failed-Recipients: ${mail.recipient}`,
      daemon(BUILT, 'Warning: message 1P1ceB-000FL1-4q delayed 24 hours'),
      '',
      'A message that you sent has not yet been delivered to one or more of its recipients.',
      'Eventually the mail delivery software will give up, and the message will be returned to you.',
      '',
      headersOf(mail),
    ),
};

export const noNotifications: Readonly<Record<string, Write>> = {
  'an answer while on leave': (mail) =>
    lines(
      'Return-Path: <>',
      `From: ${mail.recipient}`,
      'Subject: Automatic reply: Your account is ready: how to log in',
      'Auto-Submitted: auto-replied',
      `In-Reply-To: ${mail.messageId}`,
      '',
      'I am out of office. Your message could not be read; 550 things to do.',
    ),
  nothing: () => '',
};
