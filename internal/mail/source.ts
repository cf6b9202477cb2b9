/** Composes the MIME source of an e-mail from parts that are encoded already; nodemailer's own composer takes much longer. */
import { buildHeaderValue, foldLines } from 'nodemailer/lib/mime-funcs';
import MimeNode, { type MimeNodeHeaderValue } from 'nodemailer/lib/mime-node';
import type { Message } from './message.ts';

/** No part can hold it: quoted-printable has no `=_` (RFC 2045 §6.7). */
const BOUNDARY = '=_-mail-Part_1';

const encoder = new MimeNode();

/** Encoded and folded by nodemailer, which drops line breaks and control characters of a value. */
function header(key: string, value: MimeNodeHeaderValue): string {
  return `${foldLines(`${key}: ${encoder.encodeHeaderValue(key, value)}`, 76)}\r\n`;
}

const STRUCTURE =
  header('MIME-Version', '1.0') +
  header('Content-Type', buildHeaderValue({ value: 'multipart/alternative', params: { boundary: BOUNDARY } }));

function part(type: 'plain' | 'html', quotedPrintable: string): string {
  const headers = `Content-Type: text/${type}; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n`;
  return `\r\n--${BOUNDARY}\r\n${headers}\r\n${quotedPrintable}`;
}

/** What composes the mails from one sender. `recipient` is one address; nothing in it is read as a second one. */
export function composer(from: { readonly name: string; readonly address: string }) {
  const always = header('Auto-Submitted', 'auto-generated') + header('From', { ...from });
  return ({ subject, messageId, text, html }: Message, recipient: string, date: Date): string =>
    always +
    header('To', { name: '', address: recipient }) +
    header('Subject', subject) +
    header('Message-ID', messageId) +
    header('Date', date) +
    STRUCTURE +
    part('plain', text) +
    part('html', html) +
    `\r\n--${BOUNDARY}--\r\n`;
}
