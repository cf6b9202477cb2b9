import { expect, test } from '@jest/globals';
import type { Account } from '../account/account.ts';
import { loginInstructions, type Message } from './message.ts';
import { loadTemplates } from './templates.ts';

const settings = {
  from: 'service@partner.example',
  loginUrl: 'https://login.example/?a=1&b=2',
  linkSecret: 'a-secret-for-tests-of-32-characters',
  templates: await loadTemplates(),
};

const account: Account = {
  _id: 'acc_1',
  requestId: 'req_01m7yefdj3fantjpk5mzvj8mwh',
  partnerId: 'demo',
  businessName: 'Ann & Co',
  email: "o'hara@example.com",
  emailNormalized: "o'hara@example.com",
  ein: '123456789',
  createdAt: new Date(0),
};

const mailTo = (changes: Partial<Account> = {}, supportContact?: string): Message =>
  loginInstructions(
    { ...account, ...changes },
    { ...settings, supportContact },
    new Date('2026-11-24T09:05:00Z'),
  ).message;

test('text and HTML hold the link, the user name and the expiry', () => {
  const { text, html, subject } = mailTo();
  for (const part of [
    `${settings.loginUrl}&account=acc_1&token=`,
    account.email,
    'Ann & Co',
    'for 7 days',
    'Tuesday, 1 December 2026 at 09:05 UTC',
  ])
    expect(text).toContain(part);
  for (const part of [
    'Ann &amp; Co',
    'href="https://login.example/?a=1&amp;b=2&amp;account=acc_1&amp;token=',
    'o&#39;hara@example.com',
  ])
    expect(html).toContain(part);
  expect(subject).not.toContain('Ann');
});

test.each([
  ['a\u2028b\u2029c\u0085d', 'a b c d'],
  ['a\0b\x1b[31mc', 'a b [31mc'],
  ['株式会社 🚀', '株式会社 🚀'],
  // A long name is cut, never in the middle of a character.
  [`a${'🚀'.repeat(400)}`, `a${'🚀'.repeat(59)}\ufffd…`],
  // Mail programs would turn the name into a link.
  ['Amazon.com Inc.', 'Amazon com Inc.'],
  ['A.B.C. Ltd', 'A.B.C. Ltd'],
])('the name %j is shown on its line as %j', (businessName, shown) => {
  const { text, html } = mailTo({ businessName });
  expect(text).toContain(`The account of “${shown}” is ready.`);
  expect(html).toContain(`<strong>“${shown}”</strong>`);
});

test.each([
  'URGENT: confirm at https://evil.example/login',
  'a\r\nBcc: bob@example.com',
  'go to evil.example/login',
  'https：／／evil．example',
  'http://1.2.3.4',
])('%j is not shown as a name', (businessName) => {
  const { text, html } = mailTo({ businessName });
  expect(text).toContain('The account of your business is ready.');
  expect(html).toContain('<strong>your business</strong>');
  expect(`${text}${html}`).not.toMatch(/evil|URGENT|bob/i);
});

test('both parts have the reference number, and the contact if one is set', () => {
  const without = mailTo();
  const { text, html } = mailTo({}, 'help@x.example');
  for (const part of [text, html, without.text, without.html])
    expect(part).toContain('01M7-YEFD-J3FA-NTJP');
  for (const part of [text, html])
    expect(part).toContain('Questions? Contact help@x.example and give this number.');
  expect(without.text).not.toContain('Contact');
});
