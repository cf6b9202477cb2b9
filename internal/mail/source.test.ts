/** nodemailer's own composer is the oracle: ours makes the same bytes, for whatever template, names and addresses. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import MailComposer from 'nodemailer/lib/mail-composer';
import PostalMime from 'postal-mime';
import { composer } from './source.ts';
import { loadTemplates, placeholders, templateFiles, type Values } from './templates.ts';

interface Mail {
  readonly fromName: string;
  readonly recipient: string;
  readonly subject: string;
  readonly messageId: string;
  /** Templates; the HTML one has placeholders between tags only. */
  readonly text: string;
  readonly html: string;
  readonly values: Values;
}

const FROM = 'accounts@partner.example';
const DATE = new Date('2026-12-01T09:05:00Z');
const LONG_URL = `https://login.example/?next=${'a=1&'.repeat(300)}token=${'x'.repeat(900)}`;

const plain: Mail = {
  fromName: '',
  recipient: 'ann@example.com',
  subject: 'Welcome',
  messageId: '<acc_1.login-instructions@partner.example>',
  text: 'Hello {{businessName}},\n\nGo to {{activationUrl}}\n',
  html: '<p>Hello {{businessName}},</p>\n<a href="{{activationUrl}}">go</a>\n',
  values: Object.fromEntries(Object.keys(placeholders).map((name) => [name, `value of ${name}`])) as Values,
};

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'source-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function ours({ fromName, recipient, messageId, values, ...files }: Mail): Promise<Buffer> {
  for (const kind of ['text', 'html'] as const) await writeFile(join(folder, templateFiles[kind]), files[kind]);
  await writeFile(join(folder, templateFiles.subject), 'S');
  const { text, html } = await loadTemplates(folder);
  const message = { subject: files.subject, messageId, text: text(values), html: html(values) };
  return Buffer.from(composer({ name: fromName, address: FROM })(message, recipient, DATE));
}

const lines = (text: string): string => text.replaceAll(/\r\n?|\n/g, '\r\n');
const escapeHtml = (value: string): string =>
  value
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;');

function filled(template: string, values: Values, escape = (value: string): string => value): string {
  return lines(template).replaceAll(/\{\{\s*(\w+)\s*\}\}/g, (_, name: keyof Values) => lines(escape(values[name])));
}

function nodemailers(mail: Mail): Promise<Buffer> {
  const { fromName, recipient, subject, messageId, values } = mail;
  return new MailComposer({
    from: { name: fromName, address: FROM },
    to: { name: '', address: recipient },
    subject,
    messageId,
    date: DATE,
    text: filled(mail.text, values),
    html: filled(mail.html, values, escapeHtml),
    headers: { 'Auto-Submitted': 'auto-generated' },
    encoding: 'quoted-printable',
    boundaryPrefix: '=_',
    baseBoundary: 'mail',
  })
    .compile()
    .build();
}

const LINES_77 = [75, 76, 77, 78, 152, 998, 5_000].map((length) => 'x'.repeat(length)).join('\n');

describe('the same bytes as from nodemailer', () => {
  test.each<[string, Partial<Mail>]>([
    ['plain words', {}],
    ['a sender with a name', { fromName: 'Partner Accounts' }],
    ['a sender with a name to quote', { fromName: 'Accounts, "Ltd" <x@y.example>' }],
    ['a sender with a name outside ASCII', { fromName: 'Büro für Konten und 株式会社 🚀'.repeat(4) }],
    ['a sender with a line break in its name', { fromName: 'a\r\nBcc: eve@example.org' }],
    ['a subject outside ASCII', { subject: 'Ihr Konto ist bereit – so melden Sie sich an: 株式会社 🚀 äöü' }],
    ['a subject with line breaks', { subject: 'a\r\nBcc: eve@example.org\nc\rd' }],
    ['a subject that looks encoded', { subject: '=?utf-8?B?QmNj?= x' }],
    ['a Message-ID with a line break', { messageId: '<a@b>\r\nBcc: eve@example.org' }],
    ['a long Message-ID', { messageId: `<${'a'.repeat(300)}@partner.example>` }],
    ['a domain outside ASCII', { recipient: 'ann@bücher.example' }],
    ['an address outside ASCII', { recipient: 'änn@bücher.example' }],
    ['a long address', { recipient: `${'a'.repeat(64)}@${'b'.repeat(60)}.${'c'.repeat(60)}.example` }],
    ['an address to quote', { recipient: `"a, b"@example.com` }],
    ['two addresses in one', { recipient: 'ann@example.com, eve@example.org' }],
    ['an address with a line break', { recipient: 'ann@example.com\r\nBcc: eve@example.org' }],
    ['long lines', { text: `${LINES_77}\n{{activationUrl}}`, html: `${LINES_77}\n{{activationUrl}} ${LINES_77}` }],
    ['lines outside ASCII', { text: `äöü 株式会社 🚀\u2028\u0085\n`.repeat(60) + '{{activationUrl}}' }],
    ['white space at line ends', { text: ' {{activationUrl}} \n \t\n{{loginUrl}}\t\n\n ' }],
    ['dots and equal signs', { text: '.\n..\n.{{activationUrl}}.\n=3D=\n==\n.' }],
    ['a boundary', { text: '--=_-mail-Part_1--\r\n{{activationUrl}}\n--=_-mail-Part_1\n' }],
    ['other line ends', { text: 'a\rb\r\nc\n\rd {{activationUrl}}' }],
    ['a placeholder over two lines', { text: 'a {{\n  activationUrl\n}} b {{loginUrl}}{{support}}' }],
    ['hostile values', { values: { ...plain.values, businessName: `"=<&'>\r\n.\r\n--=_-mail-Part_1\0\x1b ` } }],
    ['a very long link', { values: { ...plain.values, activationUrl: LONG_URL } }],
  ])('%s', async (_what, parts) => {
    const mail = { ...plain, ...parts };
    expect((await ours(mail)).toString()).toBe((await nodemailers(mail)).toString());
  });

  test('anything, in lines of the length that SMTP takes', async () => {
    // Braces are placeholders, and the reader of templates drops a byte order mark.
    const words = fc
      .string({ unit: 'binary', maxLength: 100 })
      .map((text) => text.toWellFormed().replaceAll(/[{}\ufeff]/g, ''));
    const names = Object.keys(placeholders) as (keyof Values)[];
    const placeholder = fc.constantFrom(...names).map((name) => `>{{${name}}}`);
    const template = fc
      .array(fc.oneof(words, placeholder, fc.constantFrom('\n', '\r\n', ' ', '=', '.', '\t')), { maxLength: 30 })
      // Without this line end nodemailer may break the last line where it need not.
      .map((pieces) => `${pieces.join('')}>{{activationUrl}}\n`);
    const mails = fc.record({
      fromName: words,
      subject: words.map((text) => `S${text}`),
      recipient: words.map((name) => `a${name}@example.com`),
      messageId: words.map((name) => `<${name}@partner.example>`),
      text: template,
      html: template,
      values: fc.record(Object.fromEntries(names.map((name) => [name, words])) as Record<keyof Values, typeof words>),
    });
    await fc.assert(
      fc.asyncProperty(mails, async (mail) => {
        const source = await ours(mail);
        expect(source.toString()).toBe((await nodemailers(mail)).toString());
        const body = source.subarray(source.indexOf('\r\n\r\n') + 4).toString('latin1');
        expect(body).toMatch(/^(?:[\t\x20-\x7e]{0,76}\r\n)+$/);
      }),
      { numRuns: 200 },
    );
  });
});

test('a reader finds the headers, the text and the HTML', async () => {
  const values = { ...plain.values, businessName: '“株式会社 <b> & Söhne”', activationUrl: LONG_URL };
  const email = await PostalMime.parse(await ours({ ...plain, fromName: 'Büro, "Konten"', values }));
  expect(email.headers.map(({ key }) => key).toSorted()).toEqual([
    'auto-submitted',
    'content-type',
    'date',
    'from',
    'message-id',
    'mime-version',
    'subject',
    'to',
  ]);
  expect(email).toMatchObject({
    from: { name: 'Büro, "Konten"', address: FROM },
    to: [{ name: '', address: plain.recipient }],
    subject: plain.subject,
    messageId: plain.messageId,
    date: DATE.toISOString(),
    attachments: [],
  });
  expect(email.text?.trim()).toBe(filled(plain.text, values).replaceAll('\r\n', '\n').trim());
  expect(email.html?.trim()).toBe(filled(plain.html, values, escapeHtml).replaceAll('\r\n', '\n').trim());
});

test.each(['ann@example.com\r\nBcc: eve@example.org', 'ann@example.com, eve@example.org', 'ann@example.com\n\nx'])(
  'the address %j names one recipient and adds no header',
  async (recipient) => {
    const email = await PostalMime.parse(await ours({ ...plain, recipient }));
    expect(email.to).toHaveLength(1);
    expect(email.headers).toHaveLength(8);
  },
);
