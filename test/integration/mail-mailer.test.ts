/** One hand-over at a time against a faulty server: results and time-outs. */
import type { LookupFunction } from 'node:net';
import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import PostalMime from 'postal-mime';
import { startMailCatcher } from '../support/mail-catcher.ts';
import {
  createMailer,
  clientNameOf,
  relayOf,
  type Mailer,
  type MailerLimits,
} from '../../internal/mail/mailer.ts';
import type { HandOver } from '../../internal/mail/relay-answers.ts';
import { withDeadline } from '../../internal/platform/process/deadline.ts';
import { startRawRelay, type RawRelay } from '../support/raw-relay.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from '../support/wait.ts';

const message = { subject: 'S', text: 'T', html: '<p>H</p>', messageId: '<m@partner.example>' };
/** Long time-outs; a test shortens the one it is about. */
const patient: MailerLimits = {
  connectMs: HEAL_HANG_MS,
  beforeContentMs: HEAL_HANG_MS,
  afterContentMs: HEAL_HANG_MS,
  idleMs: HEAL_HANG_MS,
};
/** A busy machine needs this time to reach the phase that hangs. */
const SHORT_MS = 3_000;
const never = new AbortController().signal;

const catcher = await startMailCatcher();
const mailers: Mailer[] = [];
const relays: RawRelay[] = [];
afterEach(async () => {
  for (const mailer of mailers.splice(0)) mailer.close();
  await Promise.all(relays.splice(0).map((relay) => relay.close()));
  catcher.setFault(undefined);
  await catcher.listenAgain();
  catcher.clear();
});
afterAll(() => catcher.close());

async function startRelay(options?: Parameters<typeof startRawRelay>[0]): Promise<RawRelay> {
  const relay = await startRawRelay(options);
  relays.push(relay);
  return relay;
}

type Options = Partial<Parameters<typeof createMailer>[0]>;

function newMailer(smtpUrl = catcher.smtpUrl, options: Options = {}): Mailer {
  const mailer = createMailer({
    relay: relayOf(smtpUrl, 'auto'),
    from: 'accounts@partner.example',
    maxConnections: 2,
    limits: patient,
    ...options,
  });
  mailers.push(mailer);
  return mailer;
}

const mailerOf = ({ port }: RawRelay, options?: Options): Mailer =>
  newMailer(`smtp://ann:secret@127.0.0.1:${port}`, options);

const handOver = (mailer = newMailer(), signal = never): Promise<HandOver> =>
  mailer.handOver(message, 'ann@example.com', signal);

describe('giving up', () => {
  test('before the content aborts at once, without an e-mail', async () => {
    catcher.setFault({ at: 'rcpt', hang: true });
    const lost = new AbortController();
    const mailer = newMailer();
    const connections = catcher.counts.connections;
    const result = handOver(mailer, lost.signal);
    await eventually('the connection', () => catcher.counts.connections > connections);
    lost.abort();
    // Only the abort ends it so soon: the relay is silent, and each time-out of SMTP is longer.
    expect(await withDeadline(result, HANG_MS, 'giving up')).toMatchObject({ result: 'aborted' });
    expect(catcher.mails).toHaveLength(0);
  });

  test('just before the content sends none of it, and the next e-mail goes out', async () => {
    const mailer = newMailer();
    expect(await mailer.handOver(message, 'ann@example.com', never, () => false)).toMatchObject({
      result: 'aborted',
    });
    expect((await handOver(mailer)).result).toBe('accepted');
    expect(catcher.mails).toHaveLength(1);
  });

  test('after the content does not interrupt the wait for the answer', async () => {
    const lost = new AbortController();
    // This recipient is used here only, because the session of another test may still read
    // commands.
    const recipient = 'bob@example.com';
    let asked = 0;
    catcher.setFault(({ rcptTo }) => {
      // The catcher asks at RCPT, at DATA and after the content of this recipient.
      if (rcptTo.includes(recipient)) asked += 1;
      if (asked === 3) lost.abort();
      return undefined;
    });
    expect((await newMailer().handOver(message, recipient, lost.signal)).result).toBe('accepted');
    expect(lost.signal.aborted).toBe(true);
    expect(catcher.mailsTo(recipient)).toHaveLength(1);
  });
});

test('a connection that the server closed while idle does not fail the next e-mail', async () => {
  const mailer = newMailer();
  expect((await handOver(mailer)).result).toBe('accepted');
  await catcher.stopListening();
  await catcher.listenAgain();
  expect(await mailer.probe()).toBeUndefined();
  expect((await handOver(mailer)).result).toBe('accepted');
});

const busy = { says: '421 4.3.2 too many connections, closing', closes: true } as const;
const phases = [
  ['MAIL', 'mail'],
  ['RCPT', 'rcpt'],
  ['DATA', 'data'],
  ['CONTENT', 'content'],
] as const;
describe.each([true, false])('where commands may come together: %s', (pipelining) => {
  test.each(phases)(
    'a relay that answers 421 at %s and hangs up refuses at %s, in a new and in an open session',
    async (at, phase) => {
      const relay = await startRelay({ pipelining });
      const mailer = mailerOf(relay);
      const refused = {
        result: 'refused',
        phase,
        code: 421,
        enhancedCode: '4.3.2',
        failure: 'throttled',
      };
      relay.odd = { at, ...busy };
      expect(await handOver(mailer)).toMatchObject(refused);
      relay.odd = undefined;
      expect(await handOver(mailer)).toMatchObject({ result: 'accepted' });
      relay.odd = { at, ...busy };
      expect(await handOver(mailer)).toMatchObject(refused);
      expect(relay.contents).toHaveLength(at === 'CONTENT' ? 3 : 1);
    },
  );
});

const early = { result: 'unreachable', connected: false };
const connected = { result: 'unreachable', connected: true };
const ambiguous = { result: 'ambiguous' };

test.each([
  ['MAIL', { result: 'unreachable', outage: { reason: 'unreachable' } }],
  ['RCPT', connected],
  ['CONTENT', ambiguous],
] as const)(
  'a relay that hangs up at %s without an answer has not refused',
  async (at, expected) => {
    const relay = await startRelay();
    relay.odd = { at, says: '', closes: true, unended: true };
    expect(await handOver(mailerOf(relay))).toMatchObject(expected);
  },
);

test.each([
  ['GREETING', '220-wait', early],
  ['EHLO', '250-wait', early],
  ['AUTH', '235-wait', early],
  ['MAIL', '250-wait', connected],
  ['RCPT', '250-wait', connected],
  ['DATA', '354-wait', connected],
  ['CONTENT', '250-wait', ambiguous],
] as const)('an endless answer at %s ends at its bound', async (at, says, expected) => {
  const relay = await startRelay({ pipelining: false });
  relay.odd = { at, says, drips: true };
  const bound = at === 'CONTENT' ? 'afterContentMs' : 'beforeContentMs';
  const mailer = mailerOf(relay, { limits: { ...patient, [bound]: SHORT_MS } });
  const [handedOver, outage] = await withDeadline(
    Promise.all([handOver(mailer), expected === early ? mailer.probe() : undefined]),
    HANG_MS,
    bound,
  );
  expect(handedOver).toMatchObject(expected);
  if (expected === early) expect(outage).toMatchObject({ reason: 'unreachable' });
});

test('an endless answer at the end of an idle connection does not keep its place', async () => {
  const relay = await startRelay();
  relay.odd = { at: 'QUIT', says: '221-wait', drips: true };
  const limits = { ...patient, afterContentMs: SHORT_MS, idleMs: 10 };
  const mailer = mailerOf(relay, { limits, maxConnections: 1 });
  expect(await handOver(mailer)).toMatchObject({ result: 'accepted' });
  await eventually('the end of the session', () => relay.heard.includes('QUIT'));
  const next = withDeadline(handOver(mailer), HANG_MS, 'a place');
  expect(await next).toMatchObject({ result: 'accepted' });
});

test('the greeting uses the given name, or a fully qualified one', async () => {
  const relay = await startRelay();
  const named = mailerOf(relay, { clientName: 'out.partner.example' });
  expect((await handOver(named)).result).toBe('accepted');
  expect(await mailerOf(relay).probe()).toBeUndefined();
  const greetings = relay.heard.filter((line) => line.startsWith('EHLO '));
  expect(greetings).toEqual([
    'EHLO out.partner.example',
    `EHLO ${clientNameOf('', 'accounts@partner.example')}`,
  ]);
});

/** What the DNS answers. */
const to =
  (...addresses: readonly string[]): LookupFunction =>
  (_host, _options, done) =>
    done(
      null,
      addresses.map((address) => ({ address, family: 4 })),
    );
const through = ({ port }: RawRelay, lookup: LookupFunction): Mailer =>
  newMailer(`smtp://relay.mail:${port}`, { lookup });

test('the next address is tried if one does not answer or refuses', async () => {
  // 192.0.2.1 belongs to nobody (RFC 5737).
  const addresses = to('192.0.2.1', '127.0.0.9', '127.0.0.1');
  expect((await handOver(through(await startRelay(), addresses))).result).toBe('accepted');
});

test('a hand-over that is aborted during the DNS look-up does not connect afterwards', async () => {
  const relay = await startRelay();
  const { promise: asked, resolve } = Promise.withResolvers<() => void>();
  const mailer = through(relay, (host, options, done) =>
    resolve(() => to('127.0.0.1')(host, options, done)),
  );
  const lost = new AbortController();
  const result = handOver(mailer, lost.signal);
  const answer = await asked;
  lost.abort();
  expect(await withDeadline(result, HANG_MS, 'giving up')).toMatchObject({ result: 'aborted' });
  answer();
  expect((await handOver(through(relay, to('127.0.0.1')))).result).toBe('accepted');
  expect(relay.connections).toBe(1);
});

test('any input results in one e-mail to one address', async () => {
  const relay = await startRelay();
  const mailer = mailerOf(relay);
  const long = `${'wörd '.repeat(300)}${'x'.repeat(3_000)}\n.\n..\nFrom here\n`;
  const hostile = {
    ...message,
    subject: 'S\r\nBcc: eve@example.org',
    text: long,
    html: `<p>${long}</p>`,
  };
  for (const recipient of ['ann@example.com', 'ann@example.com, eve@example.org'])
    await mailer.handOver(hostile, recipient, never);
  expect(relay.heard.filter((line) => line.startsWith('RCPT TO:<eve@'))).toEqual([]);
  const [content = ''] = relay.contents;
  expect(content).toMatch(/^(?:[\t\x20-\x7e]{0,76}\r\n)+$/);
  const email = await PostalMime.parse(content.replaceAll('\r\n.', '\r\n'));
  expect(email.headers.map(({ key }) => key).toSorted()).toEqual(
    'auto-submitted content-type date from message-id mime-version subject to'.split(' '),
  );
  expect(email).toMatchObject({
    from: { name: '', address: 'accounts@partner.example' },
    to: [{ name: '', address: 'ann@example.com' }],
    messageId: message.messageId,
    attachments: [],
  });
  expect(email.text?.trim()).toBe(long.trim());
  expect(email.html?.trim()).toBe(`<p>${long}</p>`);
});
