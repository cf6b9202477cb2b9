import { expect, test, describe } from '@jest/globals';
import type { Account } from '../account/account.ts';
import {
  loginInstructions,
  activationLink,
  linkSecretFault,
  loadTemplates,
  TemplateError,
  placeholders,
  templateFiles,
  type Message,
  type TemplateValues,
} from './message.ts';
import { createHash } from 'node:crypto';
import { defined } from '../platform/process/defined.ts';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { folderOfFile } from '../../test/support/folder.ts';

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

const options = { loginUrl: 'https://login.example/start?lang=en', linkSecret: 'a'.repeat(32) };

test('the link has the query of the login URL, the account and the token, whose hash is stored', () => {
  const { url, tokenHash } = activationLink(account, options);
  const { origin, pathname, searchParams } = new URL(url);
  expect(origin + pathname).toBe('https://login.example/start');
  const { token = '', ...query } = Object.fromEntries(searchParams);
  expect(query).toEqual({ lang: 'en', account: 'acc_1' });
  expect(token).toMatch(/^[\w-]{43}$/);
  expect(tokenHash).toBe(createHash('sha256').update(token).digest('hex'));
});

describe('two secrets', () => {
  const [OLD, NEW] = ['o'.repeat(32), 'n'.repeat(32)];
  const link = (linkSecret: string, madeWith?: { keyId?: string }) => {
    const activation = madeWith && { tokenHash: '', expiresAt: new Date(0), ...madeWith };
    return activationLink({ ...account, ...defined({ activation }) }, { ...options, linkSecret });
  };

  test('the first makes new links, and the secret of its key id makes an old link again', () => {
    const both = `key-2026:${NEW},${OLD}`;
    expect(link(both)).toEqual(link(`key-2026:${NEW}`));
    expect(link(both)).toMatchObject({ keyId: 'key-2026' });
    expect(link(both, {})).toEqual(link(OLD));
    expect(link(OLD)).not.toHaveProperty('keyId');
    expect(link(`${OLD},key-2026:${NEW}`)).toEqual(link(OLD));
    expect(link(`${OLD},key-2026:${NEW}`, { keyId: 'key-2026' })).toEqual(link(`key-2026:${NEW}`));
  });

  const [GOOD, BETTER] = ['0a9b1c8d2e7f3a6b4c5d9e8f7a6b5c4d', 'd4c5b6a7f8e9d5c4b6a3f7e2d8c1b9a0'];

  test.each([
    [`key-1:${GOOD},key-2:${BETTER},key-3:${BETTER}`, /more than two/],
    [`key-1:${GOOD},key-1:${BETTER}`, /same key id/],
    [`key-1:short,${GOOD}`, /at least 32/],
    [`key-:${GOOD}`, /a key id is/],
    [`${GOOD},key-1:${NEW}`, /can be guessed/],
  ])('%s is refused without being quoted', (value, message) => {
    expect(linkSecretFault(value)).toMatch(message);
    expect(linkSecretFault(value)).not.toMatch(/ooo|nnn|0a9b|short/);
  });
});

/* Checks operators' template folders, and that rendering is safe. */

const GOOD = {
  subject: 'Welcome\n',
  text: 'Go to {{activationUrl}}\n',
  html: '<a href="{{activationUrl}}">go</a>\n',
};
const values = Object.fromEntries(
  Object.keys(placeholders).map((name) => [name, `<${name}>`]),
) as TemplateValues;

const folders = folderOfFile();

/** A folder with valid templates and the given changes; `undefined` leaves a file out. */
async function folderWith(
  files: Partial<Record<keyof typeof templateFiles, string | Uint8Array | undefined>>,
): Promise<string> {
  const folder = await mkdtemp(join(folders, 'one-'));
  for (const [kind, content] of Object.entries({ ...GOOD, ...files })) {
    if (content !== undefined)
      await writeFile(join(folder, templateFiles[kind as keyof typeof templateFiles]), content);
  }
  return folder;
}

async function faultsOf(folder: string): Promise<readonly string[]> {
  const error: unknown = await loadTemplates(folder).catch((thrown: unknown) => thrown);
  return error instanceof TemplateError ? error.faults : [];
}

test('the built-in templates have no faults and name every placeholder', async () => {
  const { subject, text, html } = await loadTemplates();
  expect(subject).toBe('Your account is ready: how to log in');
  for (const name of Object.keys(placeholders)) {
    expect(text(values)).toContain(`<${name}>`);
    expect(html(values)).toContain(`&lt;${name}&gt;`);
  }
  expect(`${text(values)}${html(values)}`).not.toMatch(/[{}]{2}/);
});

test('a folder of templates replaces all three', async () => {
  const folder = await folderWith({ text: '\ufeffHi {{ userName }}\r\n{{activationUrl}}\r\n' });
  const { subject, text, html } = await loadTemplates(folder);
  expect(subject).toBe('Welcome');
  expect(text(values)).toBe('Hi <userName>\n<activationUrl>\n');
  expect(html({ ...values, activationUrl: `https://x.example/?a=1&b="'<` })).toBe(
    '<a href="https://x.example/?a=1&amp;b=&quot;&#39;&lt;">go</a>\n',
  );
});

test('a placeholder or replacement pattern inside a value stays as it is', async () => {
  const { text } = await loadTemplates(await folderWith({}));
  expect(text({ ...values, activationUrl: "{{loginUrl}}$&$1$'" })).toBe(
    "Go to {{loginUrl}}$&$1$'\n",
  );
});

test.each<[Parameters<typeof folderWith>[0], string]>([
  [{ html: undefined }, 'html: cannot be read (ENOENT)'],
  [{ html: Uint8Array.of(0xff, 0xfe) }, 'html: is not UTF-8'],
  [
    { text: `${GOOD.text}\n{{nmae}}` },
    'txt: line 3: {{nmae}} is unknown; there are businessName, ',
  ],
  [{ text: '{{activationUrl}}\n{{loginUrl}' }, 'txt: line 2: braces without a partner'],
  [{ text: '{{loginUrl}}' }, 'txt: has no {{activationUrl}}: nobody could log in'],
  [{ subject: 'Welcome\nBcc: x' }, 'subject.txt: must be one line without control characters'],
  [{ html: `${GOOD.html}<a title={{userName}}>` }, 'html: line 2: an attribute without quotes'],
  [
    { html: `${GOOD.html}<a href="{{businessName}}">` },
    'html: line 2: href and src take loginUrl and activationUrl only',
  ],
  [
    { html: `${GOOD.html}<script>x = "{{userName}}"</script>` },
    'html: line 2: a placeholder inside <script> or <style>',
  ],
])('the fault of %j is that %s', async (files, fault) => {
  expect(await faultsOf(await folderWith(files))).toEqual([
    expect.stringContaining(`login-instructions.${fault}`),
  ]);
});

test('all faults are reported together, with the folder', async () => {
  const folder = await folderWith({ subject: '', text: undefined, html: '{{' });
  await expect(loadTemplates(folder)).rejects.toThrow(
    new RegExp(`^MAIL_TEMPLATES: 4 fault\\(s\\) in ${folder}:\n`),
  );
});
