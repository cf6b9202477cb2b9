/** Writes an e-mail as it is sent; nodemailer's streams for each part would cost four times that. */
import MimeNode from 'nodemailer/lib/mime-node';
import { encode, wrap } from 'nodemailer/lib/qp';
import type { Message } from './message.ts';

interface Mailbox {
  readonly name: string;
  readonly address: string;
}

/** Quoted-printable text cannot contain it (RFC 2045 §6.7). */
const BOUNDARY = '=_part';

export function mimeOf(
  { subject, messageId, text, html }: Message,
  from: Mailbox,
  to: Mailbox,
): string {
  const head = new MimeNode(`multipart/alternative; boundary="${BOUNDARY}"`, { textEncoding: 'Q' });
  head.setHeader({
    'Auto-Submitted': 'auto-generated',
    From: from,
    To: to,
    Subject: subject,
    'Message-ID': messageId,
  });
  return [
    head.buildHeaders(),
    '',
    ...partOf('plain', text),
    ...partOf('html', html),
    `--${BOUNDARY}--`,
    '',
  ].join('\r\n');
}

const partOf = (kind: 'plain' | 'html', content: string): readonly string[] => [
  `--${BOUNDARY}`,
  `Content-Type: text/${kind}; charset=utf-8`,
  'Content-Transfer-Encoding: quoted-printable',
  '',
  wrap(encode(content.replaceAll('\n', '\r\n'))),
];
