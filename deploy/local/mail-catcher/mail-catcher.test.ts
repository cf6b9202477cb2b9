// Proves the mail catcher with real SMTP and HTTP: what it keeps, how its faults look to nodemailer, what it shows.
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, test } from '@jest/globals';
import { createTransport } from 'nodemailer';
import { HANG_MS } from '../../../test/support/wait.ts';
import { startMailCatcher, type MailCatcher, type MailCatcherOptions, type SmtpFault } from '../mail-catcher.ts';
import { freePort } from '../stores/wait.ts';
import { Mailbox, type ParsedMail } from './mailbox.ts';

/** How long the client waits in tests where the server never answers. */
const CLIENT_PATIENCE_MS = 400;
/** The same where the mail must get as far as its content first. */
const PATIENCE_FOR_CONTENT_MS = 3_000;

const FROM = { name: 'Partner Accounts', address: 'no-reply@accounts.test' };
const PROGRAM = fileURLToPath(new URL('../mail-catcher.ts', import.meta.url));

const toClose: (() => unknown)[] = [];

afterEach(async () => {
  // oxlint-disable-next-line no-await-in-loop -- closed one after the other, in reverse
  for (const close of toClose.splice(0).toReversed()) await close();
});

async function start(options?: MailCatcherOptions): Promise<MailCatcher> {
  const catcher = await startMailCatcher(options);
  toClose.push(() => catcher.close());
  return catcher;
}

interface ClientOptions {
  auth?: { user: string; pass: string };
  requireTLS?: boolean;
  socketTimeout?: number;
  greetingTimeout?: number;
}

interface OutgoingMail {
  to: string;
  bcc?: string;
  subject?: string;
  text?: string;
  html?: string;
}

/** The fields by which a sender tells failures apart. */
interface SendFailure {
  code?: string;
  responseCode?: number;
  command?: string;
  response?: string;
  originalCode?: string;
  timeoutType?: string;
}

interface SendOutcome {
  failure: SendFailure | undefined;
  /** Whether nodemailer began to read the message's content, which it does after the 354 and never before. */
  contentSent: boolean;
}

/** Not `instanceof Error`: system errors come from outside the realm that jest gives a test file. */
function isFailure(error: unknown): error is SendFailure {
  return typeof error === 'object' && error !== null;
}

/** Sends one mail over its own connection, the way the mailer does, and says how it ended. */
async function send(catcher: MailCatcher, mail: OutgoingMail, client: ClientOptions = {}): Promise<SendOutcome> {
  const transport = createTransport({ url: catcher.smtpUrl, ...client });
  let content: Readable | undefined;
  transport.use('stream', (message, done) => {
    message.message.processFunc((input: Readable) => {
      content = input;
      return input;
    });
    done();
  });
  try {
    await transport.sendMail({ from: FROM, subject: 'Hello', text: 'Hello', ...mail });
    return { failure: undefined, contentSent: content?.readableDidRead ?? false };
  } catch (error) {
    return { failure: isFailure(error) ? error : {}, contentSent: content?.readableDidRead ?? false };
  } finally {
    transport.close();
  }
}

test('a mail is kept with its envelope and parsed', async () => {
  const catcher = await start();
  const before = new Date();
  const { failure } = await send(catcher, {
    to: 'Jane <jane@example.test>',
    bcc: 'audit@example.test',
    subject: 'Grüße, “Jane” 🎉',
    text: 'Log in at https://login.test/ and activate: (https://login.test/activate?token=a-b_c%3D&x=1).\nhttps://login.test/',
    html: '<p>Grüße</p>',
  });
  expect(failure).toBeUndefined();
  expect(catcher.mails).toHaveLength(1);
  const [mail] = catcher.mails;
  expect(mail).toMatchObject({
    id: 1,
    envelopeFrom: 'no-reply@accounts.test',
    envelopeTo: ['jane@example.test', 'audit@example.test'],
    subject: 'Grüße, “Jane” 🎉',
    from: 'no-reply@accounts.test',
    fromName: 'Partner Accounts',
    to: ['jane@example.test'],
    links: ['https://login.test/', 'https://login.test/activate?token=a-b_c%3D&x=1'],
    html: '<p>Grüße</p>\n',
  });
  expect(mail?.receivedAt.getTime()).toBeGreaterThanOrEqual(before.getTime());
  expect(mail?.messageId).toMatch(/^<.+@accounts\.test>$/u);
  expect(mail?.headers['message-id']).toBe(mail?.messageId);
  expect(mail?.raw).toContain('Subject: =?UTF-8?');
  expect(catcher.counts).toEqual({ connections: 1, accepted: 1, refused: 0, cut: 0, dropped: 0 });
});

test('mails are found by envelope recipient, also a blind copy, whatever the case', async () => {
  const catcher = await start();
  await send(catcher, { to: 'jane@example.test', bcc: 'Audit@Example.test', subject: 'one' });
  await send(catcher, { to: 'joe@example.test', subject: 'two' });
  expect(catcher.mailsTo('JANE@example.test').map((mail) => mail.subject)).toEqual(['one']);
  expect(catcher.mailsTo('audit@example.test').map((mail) => mail.subject)).toEqual(['one']);
  expect(catcher.mailsTo('nobody@example.test')).toEqual([]);
});

test('a wait ends with a mail that came before it or with one that comes later', async () => {
  const catcher = await start();
  const coming = catcher.waitForMail((mail) => mail.subject === 'two', HANG_MS);
  await send(catcher, { to: 'jane@example.test', subject: 'one' });
  await send(catcher, { to: 'jane@example.test', subject: 'two' });
  expect((await coming).id).toBe(2);
  expect((await catcher.waitForMail((mail) => mail.subject === 'one', HANG_MS)).id).toBe(1);
});

test('a wait that fails says what came instead', async () => {
  const catcher = await start();
  await expect(catcher.waitForMail(() => true, 1)).rejects.toThrow('within 1 ms; no mails seen');
  await send(catcher, { to: 'jane@example.test', subject: 'one' });
  await expect(catcher.waitForMail(() => false, 1)).rejects.toThrow('"one" to jane@example.test');
  const endless = catcher.waitForMail(() => false, HANG_MS);
  await Promise.all([catcher.close(), expect(endless).rejects.toThrow('the mail catcher was closed')]);
});

const answers: { fault: SmtpFault; failure: SendFailure; contentSent: boolean }[] = [
  ...[421, 554].map((code) => ({
    fault: { at: 'connect', answer: { code, message: 'x' } } as const,
    failure: { code: 'EPROTOCOL', responseCode: code, command: 'CONN' },
    contentSent: false,
  })),
  {
    fault: { at: 'auth', answer: { code: 535, message: '5.7.8 bad credentials' } },
    failure: { code: 'EAUTH', responseCode: 535, command: 'AUTH PLAIN', response: '535 5.7.8 bad credentials' },
    contentSent: false,
  },
  ...[421, 451, 550].map((code) => ({
    fault: { at: 'mail', answer: { code, message: 'x' } } as const,
    failure: { code: 'EENVELOPE', responseCode: code, command: 'MAIL FROM' },
    contentSent: false,
  })),
  ...[451, 550].map((code) => ({
    fault: { at: 'rcpt', answer: { code, message: 'x' } } as const,
    failure: { code: 'EENVELOPE', responseCode: code, command: 'RCPT TO' },
    contentSent: false,
  })),
  {
    fault: { at: 'rcpt', answer: { code: 552, message: '5.2.2 mailbox full' } },
    failure: { code: 'EENVELOPE', responseCode: 552, command: 'RCPT TO', response: '552 5.2.2 mailbox full' },
    contentSent: false,
  },
  {
    // With PIPELINING a 421 at RCPT loses its command: only "closed, 421" is left.
    fault: { at: 'rcpt', answer: { code: 421, message: 'x' } },
    failure: { code: 'ECONNECTION', responseCode: 421, command: 'CONN' },
    contentSent: false,
  },
  ...[421, 451, 554].map((code) => ({
    fault: { at: 'data-command', answer: { code, message: 'x' } } as const,
    failure: { code: 'EENVELOPE', responseCode: code, command: 'DATA' },
    contentSent: false,
  })),
  ...[421, 451, 550].map((code) => ({
    fault: { at: 'data', answer: { code, message: 'x' } } as const,
    failure: { code: 'EMESSAGE', responseCode: code, command: 'DATA' },
    contentSent: true,
  })),
];

test.each(answers)('answer $fault.answer.code at $fault.at', async ({ fault, failure, contentSent }) => {
  const catcher = await start({ web: false });
  catcher.setFault(fault);
  const outcome = await send(catcher, { to: 'jane@example.test' }, { auth: { user: 'u', pass: 'p' } });
  expect(outcome.failure).toMatchObject(failure);
  expect(outcome.contentSent).toBe(contentSent);
  expect(catcher.mails).toHaveLength(0);
  expect(catcher.counts).toMatchObject({ accepted: 0, refused: 1 });
  catcher.setFault(undefined);
  expect((await send(catcher, { to: 'jane@example.test' })).failure).toBeUndefined();
});

const hangs: { at: SmtpFault['at']; timeoutType: string; contentSent: boolean }[] = [
  { at: 'connect', timeoutType: 'GREETING_TIMEOUT', contentSent: false },
  { at: 'auth', timeoutType: 'SOCKET_TIMEOUT', contentSent: false },
  { at: 'mail', timeoutType: 'SOCKET_TIMEOUT', contentSent: false },
  { at: 'rcpt', timeoutType: 'SOCKET_TIMEOUT', contentSent: false },
  { at: 'data-command', timeoutType: 'SOCKET_TIMEOUT', contentSent: false },
  { at: 'data', timeoutType: 'SOCKET_TIMEOUT', contentSent: true },
];

test.each(hangs)('silence at $at', async ({ at, timeoutType, contentSent }) => {
  const catcher = await start({ web: false });
  catcher.setFault({ at, hang: true });
  const outcome = await send(
    catcher,
    { to: 'jane@example.test' },
    {
      auth: { user: 'u', pass: 'p' },
      // Whichever is shorter names the error, so before the greeting only that one may run out.
      socketTimeout: at === 'connect' ? HANG_MS : contentSent ? PATIENCE_FOR_CONTENT_MS : CLIENT_PATIENCE_MS,
      greetingTimeout: at === 'connect' ? CLIENT_PATIENCE_MS : HANG_MS,
    },
  );
  expect(outcome.failure).toMatchObject({ code: 'ETIMEDOUT', command: 'CONN', timeoutType });
  expect(outcome.failure?.responseCode).toBeUndefined();
  expect(outcome.contentSent).toBe(contentSent);
  expect(catcher.mails).toHaveLength(0);
});

test.each([
  { cut: 'before-store', kept: 0 },
  { cut: 'after-store', kept: 1 },
] as const)('a connection cut $cut', async ({ cut, kept }) => {
  const catcher = await start({ web: false });
  catcher.setFault({ at: 'data', cut });
  const outcome = await send(catcher, { to: 'jane@example.test' });
  expect(outcome.failure).toMatchObject({ code: 'ESOCKET', command: 'CONN', originalCode: 'ECONNRESET' });
  expect(outcome.failure?.responseCode).toBeUndefined();
  expect(outcome.contentSent).toBe(true);
  expect(catcher.mails).toHaveLength(kept);
  expect(catcher.counts).toMatchObject({ accepted: 0, refused: 0, cut: 1 });
});

test('STARTTLS that the client requires is not offered', async () => {
  const catcher = await start({ web: false });
  const { failure } = await send(catcher, { to: 'jane@example.test' }, { requireTLS: true });
  expect(failure).toMatchObject({ code: 'ETLS', responseCode: 500, command: 'STARTTLS' });
});

test('a fault can be chosen by what the session said', async () => {
  const catcher = await start({ web: false });
  catcher.setFault(({ mailFrom, rcptTo }) =>
    mailFrom === FROM.address && rcptTo.includes('full@example.test')
      ? { at: 'rcpt', answer: { code: 552, message: '5.2.2 mailbox full' } }
      : undefined,
  );
  expect((await send(catcher, { to: 'jane@example.test' })).failure).toBeUndefined();
  expect((await send(catcher, { to: 'full@example.test' })).failure).toMatchObject({ responseCode: 552 });
  expect(catcher.mails.map((mail) => mail.envelopeTo)).toEqual([['jane@example.test']]);
});

function mistake(): never {
  throw new Error('my mistake');
}

test('a mistake in the functions of a test is told to the test', async () => {
  const catcher = await start({ web: false });
  const waiting = catcher.waitForMail(mistake, HANG_MS);
  await Promise.all([expect(waiting).rejects.toThrow('my mistake'), send(catcher, { to: 'jane@example.test' })]);
  catcher.setFault(mistake);
  const { failure } = await send(catcher, { to: 'jane@example.test' });
  expect(failure).toMatchObject({ responseCode: 451, response: '451 fault function failed: my mistake' });
});

test('any credentials are taken, and none', async () => {
  const catcher = await start({ web: false });
  const { failure } = await send(catcher, { to: 'jane@example.test' }, { auth: { user: 'any', pass: 'any' } });
  expect(failure).toBeUndefined();
  expect((await send(catcher, { to: 'jane@example.test' })).failure).toBeUndefined();
});

test('SMTP goes away with its open connections and comes back on its port, the page stays', async () => {
  // Of those that the kernel gives, another process might take it meanwhile.
  const catcher = await start({ smtpPort: await freePort() });
  await send(catcher, { to: 'jane@example.test' });
  const { smtpUrl } = catcher;

  let hung: (() => void) | undefined;
  const isHanging = new Promise<void>((resolve) => (hung = resolve));
  catcher.setFault(() => {
    hung?.();
    return { at: 'rcpt', hang: true };
  });
  const open = send(catcher, { to: 'jane@example.test' });
  await isHanging;
  await catcher.stopListening();
  await catcher.stopListening();
  const { failure } = await open;
  expect(['ECONNECTION', 'ESOCKET']).toContain(failure?.code);

  const refused = await send(catcher, { to: 'jane@example.test' });
  expect(refused.failure).toMatchObject({ code: 'ESOCKET', command: 'CONN', originalCode: 'ECONNREFUSED' });
  expect((await fetch(catcher.webUrl)).status).toBe(200);

  catcher.setFault(undefined);
  await catcher.listenAgain();
  await catcher.listenAgain();
  expect(catcher.smtpUrl).toBe(smtpUrl);
  expect((await send(catcher, { to: 'jane@example.test' })).failure).toBeUndefined();
  expect(catcher.mails).toHaveLength(2);
});

test('a message over the size limit is refused', async () => {
  const catcher = await start({ web: false });
  const { failure } = await send(catcher, { to: 'jane@example.test', text: 'x'.repeat(2 * 1_024 * 1_024) });
  expect(failure).toMatchObject({ code: 'EMESSAGE', responseCode: 552, command: 'DATA' });
  expect(catcher.mails).toHaveLength(0);
  expect(catcher.counts).toMatchObject({ accepted: 0, refused: 1 });
});

test('only the newest mails are kept, and the dropped ones are counted', async () => {
  const catcher = await start({ web: false, keep: 2 });
  for (const subject of ['one', 'two', 'three']) {
    // oxlint-disable-next-line no-await-in-loop -- the order is what is tested
    await send(catcher, { to: 'jane@example.test', subject });
  }
  expect(catcher.mails.map(({ id, subject }) => ({ id, subject }))).toEqual([
    { id: 2, subject: 'two' },
    { id: 3, subject: 'three' },
  ]);
  expect(catcher.counts).toMatchObject({ accepted: 3, dropped: 1 });
  catcher.clear();
  expect(catcher.mails).toHaveLength(0);
  expect(catcher.counts).toMatchObject({ accepted: 3, dropped: 1 });
});

test('large mails are dropped before small ones would be', () => {
  const mailbox = new Mailbox();
  const raw = 'x'.repeat(1_024 * 1_024);
  const large: ParsedMail = {
    messageId: '',
    subject: '',
    from: '',
    fromName: '',
    to: [],
    text: '',
    html: '',
    links: [],
    raw,
    headers: {},
  };
  const envelope = { mailFrom: 'a@example.test', rcptTo: ['b@example.test'] };
  for (let sent = 0; sent < 100; sent += 1) mailbox.add(large, envelope);
  expect(mailbox.mails).toHaveLength(64);
  expect(mailbox.mails[0]?.id).toBe(37);
  expect(mailbox.dropped).toBe(36);
});

const HOSTILE = '<script>alert(1)</script><img src=x onerror=alert(1)>';

test('a hostile mail reaches the reader as data only', async () => {
  const catcher = await start();
  await send(catcher, { to: 'jane@example.test', subject: HOSTILE, text: HOSTILE, html: HOSTILE });

  const list = await fetch(`${catcher.webUrl}/api/mails`);
  expect(list.headers.get('content-type')).toMatch(/^application\/json/u);
  expect(list.headers.get('x-content-type-options')).toBe('nosniff');
  expect(await list.json()).toMatchObject([{ subject: HOSTILE }]);

  const html = await fetch(`${catcher.webUrl}/api/mails/1/html`);
  const policy = html.headers.get('content-security-policy');
  expect(policy).toContain("default-src 'none'");
  expect(policy).toMatch(/; sandbox allow-popups allow-popups-to-escape-sandbox$/u);
  expect(policy).not.toMatch(/script/u);
  expect(html.headers.get('x-content-type-options')).toBe('nosniff');
  expect(html.headers.get('referrer-policy')).toBe('no-referrer');

  const page = await fetch(catcher.webUrl);
  expect(page.headers.get('content-security-policy')).toMatch(
    /^default-src 'none'; script-src 'sha256-[\w+/=]{44}'; style-src 'sha256-[\w+/=]{44}';/u,
  );
  expect(page.headers.get('content-security-policy')).not.toContain('unsafe');
  const served = await page.text();
  expect(served).not.toContain('alert(1)');
  expect(served).toContain(catcher.smtpUrl);
});

test('the page never turns strings into markup and frames mails without scripts', async () => {
  const page = await readFile(new URL('./page.html', import.meta.url), 'utf8');
  expect(page).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|eval\(/u);
  expect(page).toContain("setAttribute('sandbox', 'allow-popups allow-popups-to-escape-sandbox')");
});

test('the JSON API lists, filters, shows and deletes', async () => {
  const catcher = await start();
  await send(catcher, { to: 'jane@example.test', subject: 'one', html: '<p>one</p>' });
  await send(catcher, { to: 'joe@example.test', subject: 'two' });
  const get = async (path: string): Promise<unknown> => (await fetch(`${catcher.webUrl}${path}`)).json();

  const list = await get('/api/mails');
  expect(list).toMatchObject([{ subject: 'two' }, { subject: 'one', text: 'Hello\n', links: [] }]);
  expect(list).not.toMatchObject([{ raw: expect.anything() }, {}]);
  expect(await get('/api/mails?to=jane%40example.test')).toMatchObject([{ subject: 'one' }]);
  const summary = {
    receivedAt: expect.any(String),
    messageId: expect.any(String),
    from: FROM.address,
    fromName: FROM.name,
  };
  expect(await get('/api/mails?summary')).toEqual([
    { id: 2, envelopeTo: ['joe@example.test'], subject: 'two', ...summary },
    { id: 1, envelopeTo: ['jane@example.test'], subject: 'one', ...summary },
  ]);
  expect(await get('/api/mails/1')).toMatchObject({ subject: 'one', raw: expect.stringContaining('Subject: one') });
  const html = await fetch(`${catcher.webUrl}/api/mails/1/html`);
  expect(await html.text()).toMatch(/^<!doctype html><meta charset="utf-8"><base target="_blank"><p>one<\/p>/u);

  expect((await fetch(`${catcher.webUrl}/api/mails`, { method: 'DELETE' })).status).toBe(204);
  expect(await get('/api/mails')).toEqual([]);
  for (const path of ['/api/mails/1', '/api/mails/1/html', '/api/mails/none']) {
    // oxlint-disable-next-line no-await-in-loop -- three quick requests
    expect((await fetch(`${catcher.webUrl}${path}`)).status).toBe(404);
  }
});

test('an open page hears of each change, and does not keep the catcher from closing', async () => {
  const catcher = await start();
  const response = await fetch(`${catcher.webUrl}/api/changes`);
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  const events = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  expect((await events?.read())?.value).toBe('data: changed\n\n');
  await send(catcher, { to: 'jane@example.test' });
  expect((await events?.read())?.value).toBe('data: changed\n\n');
  catcher.clear();
  expect((await events?.read())?.value).toBe('data: changed\n\n');
  const ended = events?.read().catch(() => undefined);
  await catcher.close();
  await ended;
});

test('a taken port is an error and leaves nothing open', async () => {
  const catcher = await start();
  const smtpPort = Number(new URL(catcher.smtpUrl).port);
  const webPort = Number(new URL(catcher.webUrl).port);
  await expect(startMailCatcher({ smtpPort })).rejects.toThrow('EADDRINUSE');
  await expect(startMailCatcher({ webPort })).rejects.toThrow('EADDRINUSE');
});

function run(...options: string[]): { child: ChildProcess; output: () => string } {
  const child = spawn(process.execPath, [PROGRAM, ...options], { stdio: ['ignore', 'pipe', 'pipe'] });
  toClose.push(() => child.kill('SIGKILL'));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  return { child, output: () => output };
}

test('it runs alone until a signal and then ends with 0', async () => {
  const { child, output } = run('--smtp-port', '0', '--web-port', '0');
  await once(child.stdout ?? child, 'data');
  expect(output()).toMatch(/send mails to smtp:\/\/127\.0\.0\.1:\d+, read them at http:\/\/127\.0\.0\.1:\d+/u);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
});

test.each([
  { fault: 'a port that is taken', message: 'EADDRINUSE' },
  { fault: 'a port that is no port', message: '--smtp-port must be a port number' },
])('$fault ends it with 1', async ({ message }) => {
  const catcher = await start({ web: false });
  const port = message === 'EADDRINUSE' ? new URL(catcher.smtpUrl).port : '1025x';
  const { child, output } = run('--smtp-port', port, '--web-port', '0');
  expect(await once(child, 'exit')).toEqual([1, null]);
  expect(output()).toContain(message);
});
