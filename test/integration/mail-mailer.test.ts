/** One hand-over at a time against a faulty server: results and time-outs. */
import type { LookupFunction } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import PostalMime from 'postal-mime';
import { clientNameOf } from '../../internal/mail/client-name.ts';
import { startMailCatcher, type MailCatcher } from '../support/mail-catcher.ts';
import { createMailer, type Mailer, type MailerLimits } from '../../internal/mail/mailer.ts';
import type { HandOver } from '../../internal/mail/relay-answers.ts';
import { relayOf } from '../../internal/mail/relay.ts';
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

function newMailer(
  smtpUrl = catcher.smtpUrl,
  limits = patient,
  more: {
    readonly lookup?: LookupFunction;
    readonly clientName?: string;
    readonly maxConnections?: number;
  } = {},
): Mailer {
  const mailer = createMailer({
    relay: relayOf(smtpUrl, 'auto'),
    from: 'accounts@partner.example',
    maxConnections: 2,
    limits,
    ...more,
  });
  mailers.push(mailer);
  return mailer;
}

const handOver = (mailer = newMailer(), signal = never): Promise<HandOver> =>
  mailer.handOver(message, 'ann@example.com', signal);

test.each([
  ['connect', { result: 'unreachable', connected: false }, 'connectMs'],
  ['rcpt', { result: 'unreachable', connected: true }, 'beforeContentMs'],
  ['data', { result: 'ambiguous' }, 'afterContentMs'],
] as const)(
  'a server that never answers at %s results in %j after %s',
  async (at, expected, bound) => {
    catcher.setFault({ at, hang: true });
    const mailer = newMailer(catcher.smtpUrl, { ...patient, [bound]: SHORT_MS });
    expect(await withDeadline(handOver(mailer), HANG_MS, bound)).toMatchObject(expected);
    expect(catcher.mails).toHaveLength(0);
  },
);

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

describe('a relay that answers 421 and hangs up', () => {
  const relays: RawRelay[] = [];
  afterAll(() => Promise.all(relays.map((relay) => relay.close())));
  const start = async (options: Parameters<typeof startRawRelay>[0]): Promise<RawRelay> => {
    const relay = await startRawRelay(options);
    relays.push(relay);
    return relay;
  };
  const busy = { says: '421 4.3.2 too many connections, closing', closes: true } as const;

  const phases = [
    ['MAIL', 'mail'],
    ['RCPT', 'rcpt'],
    ['DATA', 'data'],
    ['CONTENT', 'content'],
  ] as const;
  describe.each([true, false])('where commands may come together: %s', (pipelining) => {
    test.each(phases)(
      'at %s is refused at %s, in a new session and in one that is open',
      async (at, phase) => {
        const relay = await start({ pipelining });
        const mailer = newMailer(`smtp://127.0.0.1:${relay.port}`);
        const refused = {
          result: 'refused',
          phase,
          code: 421,
          enhancedCode: '4.3.2',
          fault: 'capacity',
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

  test.each(['RCPT', 'CONTENT'] as const)(
    'without an answer at %s is not a refusal',
    async (at) => {
      const relay = await start({});
      relay.odd = { at, says: '', closes: true, unended: true };
      const expected =
        at === 'CONTENT' ? { result: 'ambiguous' } : { result: 'unreachable', connected: true };
      expect(await handOver(newMailer(`smtp://127.0.0.1:${relay.port}`))).toMatchObject(expected);
    },
  );
});

test('a relay that ends the connection at MAIL FROM counts as away for all e-mails', async () => {
  const relay = await startRawRelay();
  try {
    relay.odd = { at: 'MAIL', says: '', closes: true, unended: true };
    expect(await handOver(newMailer(`smtp://127.0.0.1:${relay.port}`))).toMatchObject({
      result: 'unreachable',
      outage: { reason: 'unreachable' },
    });
  } finally {
    await relay.close();
  }
});

describe('an endless answer of the relay', () => {
  let relay: RawRelay;
  beforeEach(async () => {
    relay = await startRawRelay({ pipelining: false });
  });
  afterEach(() => relay.close());
  const url = (): string => `smtp://ann:secret@127.0.0.1:${relay.port}`;
  const early = { result: 'unreachable', connected: false };

  test.each([
    ['GREETING', '220-wait', early],
    ['EHLO', '250-wait', early],
    ['AUTH', '235-wait', early],
    ['MAIL', '250-wait', { result: 'unreachable', connected: true }],
    ['RCPT', '250-wait', { result: 'unreachable', connected: true }],
    ['DATA', '354-wait', { result: 'unreachable', connected: true }],
    ['CONTENT', '250-wait', { result: 'ambiguous' }],
  ] as const)('at %s ends at its bound', async (at, says, expected) => {
    relay.odd = { at, says, drips: true };
    const bound = at === 'CONTENT' ? 'afterContentMs' : 'beforeContentMs';
    const mailer = newMailer(url(), { ...patient, [bound]: SHORT_MS });
    expect(await withDeadline(handOver(mailer), HANG_MS, bound)).toMatchObject(expected);
  });

  test.each(['GREETING', 'EHLO', 'AUTH'] as const)('at %s fails a probe', async (at) => {
    relay.odd = { at, says: '250-wait', drips: true };
    const mailer = newMailer(url(), { ...patient, beforeContentMs: SHORT_MS });
    expect(await withDeadline(mailer.probe(), HANG_MS, 'probe')).toMatchObject({
      reason: 'unreachable',
    });
  });

  test('at the end of an idle connection does not keep its place', async () => {
    relay.odd = { at: 'QUIT', says: '221-wait', drips: true };
    const limits = { ...patient, afterContentMs: SHORT_MS, idleMs: 10 };
    const mailer = newMailer(url(), limits, { maxConnections: 1 });
    expect(await handOver(mailer)).toMatchObject({ result: 'accepted' });
    await eventually('the end of the session', () => relay.heard.includes('QUIT'));
    const next = withDeadline(handOver(mailer), HANG_MS, 'a place');
    expect(await next).toMatchObject({ result: 'accepted' });
  });
});

describe('on the way to the relay', () => {
  let relay: RawRelay;
  beforeAll(async () => {
    relay = await startRawRelay();
  });
  afterAll(() => relay.close());
  const through = (lookup: LookupFunction): Mailer =>
    newMailer(`smtp://relay.mail:${relay.port}`, patient, { lookup });
  const to =
    (...addresses: readonly string[]): LookupFunction =>
    (_host, _options, done) =>
      done(
        null,
        addresses.map((address) => ({ address, family: 4 })),
      );

  test('the greeting uses the given name, or a fully qualified one', async () => {
    const clientName = 'out.partner.example';
    const named = newMailer(`smtp://127.0.0.1:${relay.port}`, patient, { clientName });
    relay.heard.length = 0;
    expect((await handOver(named)).result).toBe('accepted');
    expect(await newMailer(`smtp://127.0.0.1:${relay.port}`).probe()).toBeUndefined();
    const greetings = relay.heard.filter((line) => line.startsWith('EHLO '));
    expect(greetings).toEqual([
      'EHLO out.partner.example',
      `EHLO ${clientNameOf('', 'accounts@partner.example')}`,
    ]);
  });

  test('the next address is tried if one does not answer or refuses', async () => {
    // 192.0.2.1 belongs to nobody (RFC 5737).
    expect((await handOver(through(to('192.0.2.1', '127.0.0.9', '127.0.0.1')))).result).toBe(
      'accepted',
    );
  });

  test('a hand-over that is aborted during the DNS look-up does not connect afterwards', async () => {
    const { promise: asked, resolve } = Promise.withResolvers<() => void>();
    const mailer = through((host, options, done) =>
      resolve(() => to('127.0.0.1')(host, options, done)),
    );
    const lost = new AbortController();
    const result = handOver(mailer, lost.signal);
    const answer = await asked;
    lost.abort();
    expect(await withDeadline(result, HANG_MS, 'giving up')).toMatchObject({ result: 'aborted' });
    const { connections } = relay;
    answer();
    expect((await handOver(through(to('127.0.0.1')))).result).toBe('accepted');
    expect(relay.connections).toBe(connections + 1);
  });
});

test('any input results in one e-mail to one address', async () => {
  const relay = await startRawRelay();
  try {
    const mailer = newMailer(`smtp://127.0.0.1:${relay.port}`);
    const long = `${'wörd '.repeat(300)}${'x'.repeat(3_000)}\n.\n..\nFrom here\n`;
    const hostile = {
      ...message,
      subject: 'S\r\nBcc: eve@example.org',
      text: long,
      html: `<p>${long}</p>`,
    };
    for (const recipient of ['ann@example.com', 'ann@example.com, eve@example.org']) {
      await mailer.handOver(hostile, recipient, never);
    }
    expect(relay.heard.filter((line) => line.startsWith('RCPT'))).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/^RCPT TO:<eve@/)]),
    );
    const [content = ''] = relay.contents;
    expect(content).toMatch(/^(?:[\t\x20-\x7e]{0,76}\r\n)+$/);
    const email = await PostalMime.parse(content.replaceAll('\r\n.', '\r\n'));
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
      from: { name: '', address: 'accounts@partner.example' },
      to: [{ name: '', address: 'ann@example.com' }],
      messageId: message.messageId,
      attachments: [],
    });
    expect(email.text?.trim()).toBe(long.trim());
    expect(email.html?.trim()).toBe(`<p>${long}</p>`);
  } finally {
    await relay.close();
  }
});
