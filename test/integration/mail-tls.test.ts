/** TLS and AUTH with real relays and new certificates. */
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { SMTPServer } from 'smtp-server';
import { createMailer, relayOf } from '../../internal/mail/mailer.ts';
import { certificateIn, makeCertificate } from '../support/certificate.ts';
import { folderOfFile } from '../support/folder.ts';
import { readinessOf } from '../support/http.ts';
import { listen } from '../support/listen.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const USER = 'relay-user';
const PASSWORD = 'p@ss:w%rd/1';
const LOGIN = `${USER}:${encodeURIComponent(PASSWORD)}`;

const folder = folderOfFile();
makeCertificate(folder, ['DNS:localhost']);
const certificateFile = join(folder, 'ca.pem');

interface Relay {
  readonly port: number;
  /** Commands that the relay has seen, with whether they were encrypted. */
  readonly seen: string[];
}
const servers: SMTPServer[] = [];

/** A relay with a login; `tls` says when TLS begins. */
async function startRelay(tls: 'at once' | 'STARTTLS' | 'never'): Promise<Relay> {
  const seen: string[] = [];
  const see = (what: string, secure: boolean): void =>
    void seen.push(`${what} ${secure ? 'encrypted' : 'in clear'}`);
  const server = new SMTPServer({
    secure: tls === 'at once',
    ...certificateIn(folder),
    disabledCommands: tls === 'never' ? ['STARTTLS'] : [],
    allowInsecureAuth: true,
    authOptional: false,
    disableReverseLookup: true,
    logger: false,
    onAuth: ({ username, password }, session, done) => {
      see('AUTH', session.secure);
      if (username === USER && password === PASSWORD) done(null, { user: USER });
      else done(new Error('wrong login'));
    },
    onMailFrom: (_address, session, done) => {
      see('MAIL', session.secure);
      done();
    },
    onData: (stream, session, done) => {
      stream.resume().once('end', () => {
        see(session.envelope.rcptTo[0]?.address ?? '', session.secure);
        done();
      });
    },
  });
  // A client that does not trust the certificate ends its session.
  server.on('error', () => undefined);
  servers.push(server);
  return { port: await listen(server.server), seen };
}

const { world, ingest } = await worldOf(['ingest']);

afterAll(async () => {
  const closed = servers.map((server) => new Promise<void>((resolve) => server.close(resolve)));
  await Promise.all(closed);
});

/** From this process, which does not trust the relay's certificate. */
test.each([
  ['smtps', 'at once', 'auto', /./],
  ['smtp', 'STARTTLS', 'required', /./],
  ['smtp', 'never', 'required', /ETLS/],
] as const)(
  '%s sends neither e-mail nor password to a relay whose TLS, from %s, is untrusted or missing (%s)',
  async (scheme, tls, mode, cause) => {
    const relay = await startRelay(tls);
    const mailer = createMailer({
      relay: relayOf(`${scheme}://${LOGIN}@localhost:${relay.port}`, mode),
      from: 'accounts@partner.example',
      maxConnections: 1,
    });
    const message = { subject: 'S', text: 'T', html: '<p>H</p>', messageId: '<m@x.example>' };
    const { signal } = new AbortController();
    const handedOver = await mailer.handOver(message, 'ann@example.com', signal);
    mailer.close();
    expect(handedOver).toMatchObject({
      result: 'unreachable',
      connected: false,
      cause: expect.stringMatching(cause),
    });
    expect(JSON.stringify(handedOver)).not.toContain('p@ss');
    expect(relay.seen).toEqual([]);
  },
);

test.each([
  ['smtps', 'at once'],
  ['smtp', 'STARTTLS'],
] as const)(
  'a processor with the CA in NODE_EXTRA_CA_CERTS logs in and mails by %s with TLS %s',
  async (scheme, tls) => {
    const relay = await startRelay(tls);
    const processor = await world.spawn('processor', {
      SMTP_URL: `${scheme}://${LOGIN}@localhost:${relay.port}`,
      NODE_EXTRA_CA_CERTS: certificateFile,
    });
    const { email, ...application } = newApplication();
    await world.recordIn('completed', await submit(world, ingest, { ...application, email }));
    // Mails of other tests may wait for a processor too.
    expect(relay.seen).toEqual(
      expect.arrayContaining(['AUTH encrypted', 'MAIL encrypted', `${email} encrypted`]),
    );
    expect(relay.seen.filter((what) => !what.endsWith(' encrypted'))).toEqual([]);
    expect(await processor.stop()).toBe(0);
    expect(processor.lines.join('\n')).not.toMatch(/p@ss|p%40ss/);
  },
);

test('a processor does not mail to a relay whose certificate is for another name', async () => {
  const relay = await startRelay('at once');
  const processor = await world.spawn('processor', {
    SMTP_URL: `smtps://${LOGIN}@127.0.0.1:${relay.port}`,
    NODE_EXTRA_CA_CERTS: certificateFile,
  });
  const requestId = await submit(world, ingest, newApplication());
  await world.recordIn('account_created', requestId);
  await eventually('the warning', async () =>
    String((await readinessOf(processor)).warnings).includes('certificate is for another name'),
  );
  expect(relay.seen).toEqual([]);
  await processor.stop();
});
