/** One hand-over at a time against a misbehaving server: what the mailer says of it, and that its bounds hold. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { startMailCatcher, type MailCatcher, type SmtpFault } from '../support/mail-catcher.ts';
import { createMailer, type HandOver, type Mailer, type MailerLimits } from '../../internal/mail/mailer.ts';
import { relayOf } from '../../internal/mail/relay.ts';
import { withDeadline } from '../../internal/platform/deadline.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from '../support/wait.ts';

const message = { subject: 'S', text: 'T', html: '<p>H</p>', messageId: '<m@partner.example>' };
/** Longer than any test: only the bound that a test is about is short. */
const patient: MailerLimits = {
  connectMs: HEAL_HANG_MS,
  beforeContentMs: HEAL_HANG_MS,
  afterContentMs: HEAL_HANG_MS,
  idleMs: HEAL_HANG_MS,
};
/** Enough for a busy machine to come from the greeting to where the server hangs. */
const SHORT_MS = 3_000;
const never = new AbortController().signal;

let catcher: MailCatcher;
const mailers: Mailer[] = [];
beforeAll(async () => {
  catcher = await startMailCatcher();
});
afterEach(async () => {
  for (const mailer of mailers.splice(0)) mailer.close();
  catcher.setFault(undefined);
  await catcher.listenAgain();
  catcher.clear();
});
afterAll(() => catcher.close());

function newMailer(smtpUrl = catcher.smtpUrl, limits = patient): Mailer {
  const mailer = createMailer({
    relay: relayOf(smtpUrl, 'auto'),
    from: 'accounts@partner.example',
    maxConnections: 2,
    limits,
  });
  mailers.push(mailer);
  return mailer;
}

const handOver = (mailer = newMailer(), signal = never): Promise<HandOver> =>
  mailer.handOver(message, 'ann@example.com', signal);

test('a mail that is taken is there, with the Message-ID it was given', async () => {
  const result = await handOver();
  expect(result).toMatchObject({ result: 'accepted', answer: expect.stringMatching(/^250 /) });
  expect(catcher.mailsTo('ann@example.com').map(({ messageId }) => messageId)).toEqual([message.messageId]);
});

describe('a server that never answers', () => {
  test.each([
    ['connect', { result: 'unreachable', connected: false }, 'connectMs'],
    ['mail', { result: 'unreachable', connected: true }, 'beforeContentMs'],
    ['rcpt', { result: 'unreachable', connected: true }, 'beforeContentMs'],
    ['data-command', { result: 'unreachable', connected: true }, 'beforeContentMs'],
    ['data', { result: 'ambiguous' }, 'afterContentMs'],
  ] as const)('at %s: %j, ended by %s alone, and no mail', async (at, expected, bound) => {
    catcher.setFault({ at, hang: true });
    const mailer = newMailer(catcher.smtpUrl, { ...patient, [bound]: SHORT_MS });
    expect(await withDeadline(handOver(mailer), HANG_MS, bound)).toMatchObject(expected);
    expect(catcher.mails).toHaveLength(0);
  });

  test('a hung hand-over does not keep the next from its own connection', async () => {
    const mailer = newMailer(catcher.smtpUrl, { ...patient, beforeContentMs: SHORT_MS });
    catcher.setFault({ at: 'rcpt', hang: true });
    await handOver(mailer);
    catcher.setFault(undefined);
    expect((await handOver(mailer)).result).toBe('accepted');
  });
});

describe('a server that is away or refuses us', () => {
  test('refused connection', async () => {
    await catcher.stopListening();
    const mailer = newMailer();
    expect(await handOver(mailer)).toMatchObject({ result: 'unreachable', connected: false });
    expect(await mailer.probe()).toBe(false);
    await catcher.listenAgain();
    expect(await mailer.probe()).toBe(true);
    expect((await handOver(mailer)).result).toBe('accepted');
  });

  const authUrl = (): string => catcher.smtpUrl.replace('smtp://', 'smtp://user:pass@');
  test.each([
    ['greeting 421', { at: 'connect', answer: { code: 421, message: 'busy' } }, undefined],
    ['AUTH 535', { at: 'auth', answer: { code: 535, message: '5.7.8 no' } }, authUrl],
    ['AUTH 454', { at: 'auth', answer: { code: 454, message: '4.7.0 later' } }, authUrl],
  ] as [string, SmtpFault, (() => string) | undefined][])('%s', async (_name, fault, url) => {
    catcher.setFault(fault);
    const mailer = newMailer(url?.());
    expect(await handOver(mailer)).toMatchObject({ result: 'unreachable', connected: false });
    expect(await mailer.probe()).toBe(false);
    catcher.setFault(undefined);
    expect((await handOver(mailer)).result).toBe('accepted');
  });
});

describe('an answer that says no', () => {
  test.each([
    ['mail', 'mail', 451, undefined],
    ['mail', 'mail', 550, '5.7.1'],
    ['rcpt', 'rcpt', 450, '4.2.1'],
    ['rcpt', 'rcpt', 550, '5.1.1'],
    ['data-command', 'data', 554, '5.5.1'],
    ['data', 'content', 451, '4.3.0'],
    ['data', 'content', 554, '5.7.1'],
  ] as const)('at %s is refused at %s: %i %s', async (at, phase, code, enhancedCode) => {
    const mailer = newMailer();
    catcher.setFault({ at, answer: { code, message: `${enhancedCode ?? ''} no`.trim() } });
    expect(await handOver(mailer)).toEqual({ result: 'refused', phase, code, enhancedCode });
    catcher.setFault(undefined);
    // The session, or a new one, is good for the next mail.
    expect((await handOver(mailer)).result).toBe('accepted');
    expect(catcher.mails).toHaveLength(1);
  });
});

describe('a connection that is cut after the content', () => {
  test.each([
    ['before-store', 0],
    ['after-store', 1],
  ] as const)('%s: ambiguous, never sent again by the pool, %i mail', async (cut, mails) => {
    const before = catcher.counts.cut;
    catcher.setFault({ at: 'data', cut });
    expect(await handOver()).toMatchObject({ result: 'ambiguous' });
    expect(catcher.mails).toHaveLength(mails);
    expect(catcher.counts.cut).toBe(before + 1);
  });
});

describe('giving up', () => {
  test('before the content aborts at once, without a mail', async () => {
    catcher.setFault({ at: 'rcpt', hang: true });
    const lost = new AbortController();
    const mailer = newMailer();
    const connections = catcher.counts.connections;
    const result = handOver(mailer, lost.signal);
    await eventually('the connection', () => catcher.counts.connections > connections);
    lost.abort();
    // No bound of its own would end it.
    expect(await withDeadline(result, HANG_MS, 'giving up')).toMatchObject({ result: 'aborted' });
    expect(catcher.mails).toHaveLength(0);
  });

  test('in the instant before the content sends none of it, and the next mail goes out as usual', async () => {
    const mailer = newMailer();
    expect(await mailer.handOver(message, 'ann@example.com', never, () => false)).toMatchObject({ result: 'aborted' });
    expect((await handOver(mailer)).result).toBe('accepted');
    expect(catcher.mails).toHaveLength(1);
  });

  test('after the content does not interrupt the wait for the answer', async () => {
    const lost = new AbortController();
    // Of this test alone: a session that another test gave up may still read its commands.
    const recipient = 'bob@example.com';
    let asked = 0;
    catcher.setFault(({ rcptTo }) => {
      // With the recipient known it is asked at RCPT, at DATA and, the third time, once the content has come.
      if (rcptTo.includes(recipient)) asked += 1;
      if (asked === 3) lost.abort();
      return undefined;
    });
    expect((await newMailer().handOver(message, recipient, lost.signal)).result).toBe('accepted');
    expect(lost.signal.aborted).toBe(true);
    expect(catcher.mailsTo(recipient)).toHaveLength(1);
  });
});

test('a connection the server closed while idle costs the next mail nothing', async () => {
  const mailer = newMailer();
  expect((await handOver(mailer)).result).toBe('accepted');
  await catcher.stopListening();
  await catcher.listenAgain();
  expect(await mailer.probe()).toBe(true);
  expect((await handOver(mailer)).result).toBe('accepted');
});

test('a server that closes the session at RCPT (421) is unreachable after it had taken us in', async () => {
  const mailer = newMailer();
  catcher.setFault({ at: 'rcpt', answer: { code: 421, message: '4.3.2 closing' } });
  expect(await handOver(mailer)).toMatchObject({ result: 'unreachable', connected: true });
  expect(await mailer.probe()).toBe(true);
});
