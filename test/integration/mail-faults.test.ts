/** Faults of a mail server against the real processor: states, counters and mails. */
import { afterEach, expect, test } from '@jest/globals';
import { startService } from '../../deploy/local/processes.ts';
import type { MailHandOver } from '../../internal/account/account.ts';
import { handOversOf } from '../../internal/account/mail-ledger.ts';
import { ALIKE_RECIPIENTS } from '../../internal/mail/relay-trust.ts';
import { pastLockConflicts } from '../../internal/platform/stores/mongo.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';
import { cliOf } from '../support/cli.ts';
import { readinessOf } from '../support/http.ts';
import type { SmtpFault } from '../support/mail-catcher.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const LOGIN = { username: 'relay-user', password: 'relay-password' };

const { world, ingest } = await worldOf(['ingest']);
const smtpUrl = (): string => Object.assign(new URL(world.mail.smtpUrl), LOGIN).href;
const processorSettings = () => ({ ...world.environment, LOG_LEVEL: 'info', SMTP_URL: smtpUrl() });

const processor = await world.start('processor', { SMTP_URL: smtpUrl() });
afterEach(async () => {
  world.mail.setFault(undefined);
  await world.mail.listenAgain();
  // Later attempts would meet the fault of another test.
  await pastLockConflicts(() => world.stores.requests.deleteMany({}));
});

/** The record after its first attempt at the e-mail. */
function settled(requestId: string): Promise<SubmissionRecord> {
  return eventually('the first attempt to be settled', async () => {
    const record = await world.record(requestId);
    if (record === null || record.state === 'recorded') return undefined;
    return record.state !== 'account_created' || record.lastError !== undefined
      ? record
      : undefined;
  });
}

interface Then {
  readonly state: SubmissionRecord['state'];
  /** The next attempt comes after these seconds, of which a fifth is random. */
  readonly seconds?: number;
  /** The relay refuses all mail, so the record stays in the line. */
  readonly place?: true;
}
const RELAY: Then = { state: 'account_created', place: true };
const UNDELIVERABLE: Then = { state: 'undeliverable' };
const later = (seconds: number): Then => ({ state: 'account_created', seconds });
/** A busy machine may need this time between two writes. */
const BETWEEN_WRITES_S = 10;

/** Submits under the fault; returns the record and the mails after the first attempt. */
async function firstAttempt(fault: SmtpFault, then: Then, noted: Partial<MailHandOver>) {
  world.mail.setFault(fault);
  const application = newApplication();
  const record = await settled(await submit(world, ingest, application));
  world.mail.setFault(undefined);
  expect(record).toMatchObject({ state: then.state, attempts: 0 });
  if (then.place) await world.recordIn('completed', record._id);
  const [account] = await world.accounts({ requestId: record._id });
  const [first, ...others] = handOversOf(account?.mail);
  expect(first).toMatchObject(noted);
  const possible = noted.result === 'ambiguous' || then.place ? 1 : 0;
  expect(account?.mail?.possible).toBe(possible);
  if (!then.place) expect(others).toEqual([]);
  if (then.seconds !== undefined) {
    const waits = (Number(record.dueAt) - Number(first?.endedAt)) / 1_000;
    expect(waits).toBeGreaterThanOrEqual(then.seconds * 0.8);
    expect(waits).toBeLessThanOrEqual(then.seconds * 1.2 + BETWEEN_WRITES_S);
  }
  return { record, mails: () => world.mail.mailsTo(application.email) };
}

test.each<['mail' | 'rcpt' | 'data', string, string, Then]>([
  ['mail', '451 4.3.0 try later', 'our sender address', RELAY],
  ['rcpt', '450 4.2.1 mailbox busy', 'the mail for now', later(30)],
  ['rcpt', '550 5.1.1 unknown user', "the applicant's address", UNDELIVERABLE],
  ['data', '554 5.7.1 looks like spam', 'the mail', later(60)],
])('an e-mail whose %s is answered %s', async (at, answer, what, then) => {
  const [codes = '', code = '', enhancedCode = ''] = /^(\d+) (\S+)/.exec(answer) ?? [];
  const message = answer.slice(4);
  const noted = { result: 'refused', phase: at === 'data' ? 'content' : at, enhancedCode } as const;
  const fault = { at, answer: { code: Number(code), message } };
  const { record, mails } = await firstAttempt(fault, then, noted);
  expect(record.lastError).toContain(`the mail server did not accept ${what} (${codes})`);
  expect(mails()).toHaveLength(then.place ? 1 : 0);
});

test.each([
  ['before-store', 0],
  ['after-store', 1],
] as const)(
  'a connection cut after the content, %s, is ambiguous, and a second e-mail is counted',
  async (cut, arrived) => {
    const ambiguous = { result: 'ambiguous', phase: 'content' } as const;
    const { record, mails } = await firstAttempt({ at: 'data', cut }, later(30), ambiguous);
    expect(record.lastError).toContain('ended the connection without an answer');
    expect(mails()).toHaveLength(arrived);
    const counted = (): Promise<number> =>
      world.metric(processor, 'partner_ingest_possible_second_mails_total', {
        cause: 'ambiguous_data',
      });
    const before = await counted();
    expect(await cliOf(world)('retry', record._id)).toMatchObject({ code: 0 });
    await world.recordIn('completed', record._id);
    expect(mails()).toHaveLength(arrived + 1);
    expect(new Set(mails().map(({ messageId }) => messageId)).size).toBe(1);
    expect(await counted()).toBe(before + 1);
  },
);

test('a record whose workers died five times becomes a dead letter', async () => {
  world.mail.setFault({ at: 'rcpt', answer: { code: 450, message: '4.2.1 mailbox busy' } });
  const application = newApplication();
  const { _id } = await settled(await submit(world, ingest, application));
  world.mail.setFault(undefined);
  const past = new Date(Date.now() - 1_000);
  await world.stores.requests.updateOne(
    { _id },
    { $set: { crashes: 4, claimedUntil: past, dueAt: past } },
  );
  const { lastError } = await world.recordIn('dead_lettered', _id);
  expect(lastError).toContain('ended without a word');
  expect(world.mail.mailsTo(application.email)).toHaveLength(0);
});

test('a relay that forgets us ends few applications, and one order takes them up again', async () => {
  world.mail.setFault({ at: 'rcpt', answer: { code: 550, message: '5.1.1 user unknown' } });
  const ids = await Promise.all(
    Array.from({ length: 10 }, async (_, n) => {
      const fields = newApplication();
      const email = fields.email.replace('example.com', `${n}.example.com`);
      return submit(world, ingest, { ...fields, email });
    }),
  );
  const records = await Promise.all(ids.map(settled));
  const ended = records.filter(({ state }) => state === 'undeliverable');
  expect(ended.length).toBeLessThan(ALIKE_RECIPIENTS);
  for (const { lastError } of records.filter(({ state }) => state === 'account_created'))
    expect(lastError).toBe(
      'the mail server did not accept the mail for now (550 5.1.1), and others in the same words',
    );
  const { warnings } = await readinessOf(processor);
  expect(warnings.join()).toMatch(/refuses different applicants.*takes no e-mail/);
  world.mail.setFault(undefined);
  const cli = cliOf(world);
  const retryAll = (state: string) =>
    cli('retry', '--state', state, '--reason', '(550 5.1.1)', '--since', '1h', '--yes');
  await Promise.all(['undeliverable', 'account_created'].map(retryAll));
  await Promise.all(ids.map((id) => world.recordIn('completed', id)));
});

/** Begins a fault that also affects open connections. */
async function refuseSessions(fault: SmtpFault): Promise<void> {
  await world.mail.stopListening();
  world.mail.setFault(fault);
  await world.mail.listenAgain();
}

const refused = (at: 'auth' | 'mail', code: number, message: string): Promise<void> =>
  refuseSessions({ at, answer: { code, message } });

const badLogin = () => refused('auth', 535, '5.7.8 authentication failed');
const badSender = () => refused('mail', 550, '5.7.1 Sender refused');

test.each([
  ['is away', 0, /the connection is refused/, () => world.mail.stopListening()],
  ['refuses our login', 1, /it refuses the login \(535\)/, badLogin],
  ['refuses our sender', 1, /it refuses our sender \(550\)/, badSender],
] as const)(
  'while the relay %s, e-mails wait without a counted attempt, and then each goes out once',
  async (_name, senderRefused, warning, begin) => {
    await begin();
    const people = Array.from({ length: 20 }, newApplication);
    const ids = await Promise.all(people.map((fields) => submit(world, ingest, fields)));
    const made = () => world.records({ _id: { $in: ids }, state: 'account_created' });
    await eventually('all accounts', async () => (await made()).length === 20);
    const paused = (): Promise<number> =>
      world.metric(processor, 'partner_ingest_worker_paused', { waits_for: 'relay' });
    await eventually('the pause', async () => (await paused()) === 1);
    expect(await world.metric(processor, 'partner_ingest_sender_refused')).toBe(senderRefused);
    expect(await readinessOf(processor)).toMatchObject({
      ok: true,
      warnings: [expect.stringMatching(warning)],
    });
    const waiting = await made();
    expect(waiting.map(({ attempts }) => attempts)).toEqual(people.map(() => 0));
    expect(JSON.stringify(waiting)).not.toContain(LOGIN.password);

    world.mail.setFault(undefined);
    await world.mail.listenAgain();
    for (const id of ids) expect((await world.recordIn('completed', id)).attempts).toBe(0);
    for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
    await eventually('the end of the pause', async () => (await paused()) === 0);
  },
);

test.each([
  ['login', badLogin, /the login \(535\)/],
  ['sender', badSender, /our sender \(550\)/],
] as const)(
  'a processor whose %s is refused since its start is not ready until it is taken',
  async (_name, begin, words) => {
    await begin();
    const late = await startService('processor', processorSettings());
    try {
      const told = await eventually('the refusal', async () => {
        const { faults, ...more } = await readinessOf(late);
        return words.test(faults[0] ?? '') && { faults: faults.length, ...more };
      });
      expect(told).toMatchObject({ ok: false, faults: 1, warnings: [] });
      world.mail.setFault(undefined);
      await late.ready();
      await begin();
      const warned = await eventually('the warning', async () => {
        // Another processor may take it.
        await submit(world, ingest, newApplication());
        const ready = await readinessOf(late);
        return ready.warnings.length > 0 && ready;
      });
      expect(warned).toMatchObject({
        ok: true,
        faults: [],
        warnings: [expect.stringMatching(words)],
      });
    } finally {
      await late.stop();
    }
  },
);
