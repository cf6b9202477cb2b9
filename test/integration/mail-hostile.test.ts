/**
 * Names and addresses made to break a mail: one mail, one recipient, nothing of theirs in a header
 * or as HTML.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { submit } from '../support/processing.ts';
import { newApplication, openWorld, type InProcess, type World } from '../support/world.ts';

let world: World;
let ingest: InProcess;

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
  await world.start('processor');
});
afterAll(() => world.close());

test.each([
  ['a header', 'Acme\r\nBcc: victim@example.org\r\nSubject: injected'],
  ['a body', 'Acme\r\n\r\n.\r\nMAIL FROM:<evil@example.org>'],
  ['quotes and commas', `"Acme", <victim@example.org>; 'x' \\`],
  ['HTML', '<script>alert(1)</script><img src=x onerror=alert(1)>&lt;b&gt;'],
  ['a link', '<a href="https://evil.example">Acme</a>'],
  ['emoji', '🚀 Acme 👩‍👩‍👧 株式会社'],
  ['bidi controls', 'Acme \u202egnp.exe\u2066\u2069'],
  ['NUL and other controls', 'Ac\0me\x07\x1b[2J\x7f'],
  ['a lone surrogate', 'Acme \ud800'],
  ['1,000 characters', 'N'.repeat(1_000)],
  ['an encoded word', '=?utf-8?B?QmNjOiB2aWN0aW1AZXhhbXBsZS5vcmc=?='],
])('a name with %s', async (_what, businessName) => {
  const application = { ...newApplication(), business_name: businessName };
  const requestId = await submit(world, ingest, application);
  const record = await world.recordIn('completed', requestId);
  const [mail, ...others] = world.mail.mailsTo(application.email);
  expect(others).toEqual([]);
  expect(mail?.envelopeTo).toEqual([application.email]);
  expect(mail?.to).toEqual([application.email]);
  expect(mail?.subject).toBe('Your account is ready: how to log in');
  expect(Object.keys(mail?.headers ?? {}).toSorted()).toEqual([
    'auto-submitted',
    'content-type',
    'date',
    'from',
    'message-id',
    'mime-version',
    'subject',
    'to',
  ]);
  expect(mail?.html).not.toMatch(/<script|<img|<a href="https:\/\/evil/);
  // oxlint-disable-next-line no-control-regex -- control characters are what must not arrive
  const hidden = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]/;
  expect(`${mail?.text}${mail?.html}`).not.toMatch(hidden);
  expect(mail?.text.split('\n').filter((line) => line.startsWith('The account of '))).toHaveLength(
    1,
  );
  const hrefs = [...(mail?.html ?? '').matchAll(/(?:href|src)="([^"]*)"/g)].map(
    ([, target]) => target,
  );
  expect(
    hrefs.filter((target) => target?.startsWith('https://login.partner-ingest.example/') !== true),
  ).toEqual([]);
  // The account keeps the name as it was given.
  const [account] = await world.accounts({ requestId });
  expect(account?.businessName).toBe(businessName.toWellFormed());
  expect(record.attempts).toBe(0);
});

test.each([
  'ann@example.com, victim@example.org',
  'ann@example.com>\r\nRCPT TO:<victim@example.org',
  'ann@example.com\r\nBcc: victim@example.org',
  'Ann <ann@example.com>',
  '"ann@example.com, victim"@example.org',
  'ann@example.com SIZE=1',
  'ann@[127.0.0.1]',
])('a recipient injected as %j is an invalid e-mail address', async (email) => {
  const seen = world.mail.mails.length;
  const record = await world.recordIn(
    'rejected',
    await submit(world, ingest, { ...newApplication(), email }),
  );
  expect(record.reasons).toMatchObject([{ field: 'email', code: 'invalid_format' }]);
  expect(world.mail.mails).toHaveLength(seen);
});

test.each(["o'hara+tag", 'a&b/c=d!e#f$g%h*i?j^k`l{m|n}o~p', '-dash', 'x'.repeat(64)])(
  'an unusual but valid local part reaches exactly its address: %s',
  async (local) => {
    const email = `${local}@${newApplication().ein}.example`;
    await world.recordIn('completed', await submit(world, ingest, { ...newApplication(), email }));
    const [mail, ...others] = world.mail.mailsTo(email);
    expect(others).toEqual([]);
    expect(mail?.envelopeTo).toEqual([email]);
    expect(mail?.to).toEqual([email]);
  },
);
