/** Faults of a mail server against the real processor: states, counters and mails. */
import { afterEach, beforeAll, expect, test } from '@jest/globals';
import { Queue, type Job } from 'bullmq';
import { startService } from '../../deploy/local/processes.ts';
import type { MailHandOver } from '../../internal/account/account.ts';
import { handOversOf } from '../../internal/account/mail-ledger.ts';
import { pastLockConflicts } from '../../internal/platform/stores/mongo.ts';
import { QUEUE, QUEUE_PREFIX } from '../../internal/queue/job.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';
import { cliOf } from '../support/cli.ts';
import type { SmtpFault } from '../support/mail-catcher.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

const LOGIN = { username: 'relay-user', password: 'relay-password' };

const { world, ingest } = await worldOf(['ingest']);
let processor: InProcess;
const smtpUrl = (): string => Object.assign(new URL(world.mail.smtpUrl), LOGIN).href;
const processorSettings = () => ({ ...world.environment, LOG_LEVEL: 'info', SMTP_URL: smtpUrl() });

beforeAll(async () => {
  processor = await world.start('processor', { SMTP_URL: smtpUrl() });
});
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

/** The relay refuses all mail, so the record stays in the line. */
const RELAY = { state: 'account_created', attempts: 0, place: true } as const;
/** The next attempt comes after `seconds`, of which a fifth is random. */
const later = (seconds: number, ambiguous = 0) =>
  ({ state: 'account_created', attempts: 0, seconds, ambiguous }) as const;
const UNDELIVERABLE = { state: 'undeliverable' } as const;
/** A busy machine may need this time between two writes. */
const BETWEEN_WRITES_S = 10;

/** Finds the delayed job as a BullMQ tool does. */
async function delayedJob({ _id }: SubmissionRecord): Promise<Job | undefined> {
  const { hostname, port, pathname } = new URL(world.stores.redisUrl);
  const connection = { host: hostname, port: Number(port), db: Number(pathname.slice(1)) };
  const queue = new Queue(QUEUE, { connection, prefix: QUEUE_PREFIX });
  try {
    return (await queue.getJobs('delayed')).find(({ id }) => id?.startsWith(_id));
  } finally {
    await queue.close();
  }
}

interface Then {
  readonly state: SubmissionRecord['state'];
  readonly attempts?: number;
  readonly ambiguous?: number;
  readonly seconds?: number;
  readonly place?: true;
}

const refusals: readonly (readonly ['mail' | 'rcpt' | 'data', string, string, Then])[] = [
  ['mail', '451 4.3.0 try later', 'our sender address', RELAY],
  ['rcpt', '421 4.7.0 try again later', "the applicant's address", RELAY],
  ['rcpt', '450 4.2.1 mailbox busy', "the applicant's address", later(30)],
  ['rcpt', '550 5.1.1 unknown user', "the applicant's address", UNDELIVERABLE],
  ['rcpt', '550 5.7.1 relaying denied', "the applicant's address", later(60)],
  ['data', '550 5.1.1 no', 'the mail', UNDELIVERABLE],
  ['data', '554 5.7.1 looks like spam', 'the mail', later(60)],
];

/** Submits under the fault; returns the record and the mails after the first attempt. */
async function firstAttempt(fault: SmtpFault, then: Then, noted: Partial<MailHandOver>) {
  world.mail.setFault(fault);
  const application = newApplication();
  const record = await settled(await submit(world, ingest, application));
  world.mail.setFault(undefined);
  const { place, seconds, ...fields } = then;
  expect(record).toMatchObject(fields);
  expect(record.lastError).not.toMatch(/@|applicant-/);
  if (place) expect((await world.recordIn('completed', record._id)).attempts).toBe(0);
  const accounts = await world.accounts({ requestId: record._id });
  expect(accounts).toHaveLength(1);
  const mail = accounts[0]?.mail;
  const [first, ...others] = handOversOf(mail);
  expect(first).toMatchObject(noted);
  if (place) {
    expect(mail?.possible).toBe(1);
  } else {
    expect(others).toEqual([]);
    expect(mail?.possible).toBe(noted.result === 'ambiguous' ? 1 : 0);
  }
  if (seconds !== undefined) {
    const waits = (Number(record.dueAt) - Number(first?.endedAt)) / 1_000;
    expect(waits).toBeGreaterThanOrEqual(seconds * 0.8);
    expect(waits).toBeLessThanOrEqual(seconds * 1.2 + BETWEEN_WRITES_S);
    const job = await eventually('the job of its retry', () => delayedJob(record));
    expect(job).toMatchObject({
      name: 'mail',
      data: {
        reason: seconds === 60 ? 'ours' : noted.result === 'ambiguous' ? 'ambiguous' : 'busy',
        attempt: record.attempts + (record.ambiguous ?? 0) + 1,
      },
    });
    expect(Math.abs(job.timestamp + job.delay - Number(record.dueAt))).toBeLessThan(
      BETWEEN_WRITES_S * 1_000,
    );
  } else if (place !== true) {
    expect(record.dueAt).toBeUndefined();
    expect(record.history.at(-1)).toMatchObject({ state: then.state, reason: record.lastError });
  }
  // The next e-mail is not delayed.
  const next = newApplication();
  await world.recordIn('completed', await submit(world, ingest, next));
  expect(world.mail.mailsTo(next.email)).toHaveLength(1);
  return { record, mails: () => world.mail.mailsTo(application.email) };
}

test.each(refusals)('an e-mail whose %s is answered %s', async (at, answer, what, then) => {
  const [, code = '', enhancedCode = '', text = ''] = /^(\d+) (\S+) (.*)/.exec(answer) ?? [];
  const { record, mails } = await firstAttempt(
    { at, answer: { code: Number(code), message: `${enhancedCode} ${text}` } },
    then,
    {
      result: 'refused',
      phase: at === 'data' ? 'content' : at,
      code: Number(code),
      enhancedCode,
    },
  );
  expect(record.lastError).toContain(
    `the mail server did not accept ${what} (${code} ${enhancedCode})`,
  );
  expect(mails()).toHaveLength(then.place ? 1 : 0);
});

test.each([
  ['before-store', 0],
  ['after-store', 1],
] as const)(
  'a connection cut after the content, %s, is ambiguous, and a second e-mail is counted',
  async (cut, arrived) => {
    const ambiguous = { result: 'ambiguous', phase: 'content' } as const;
    const { record, mails } = await firstAttempt({ at: 'data', cut }, later(30, 1), ambiguous);
    expect(record.lastError).toContain('ended the connection without an answer');
    expect(mails()).toHaveLength(arrived);
    const counted = (cause: string): Promise<number> =>
      world.metric(processor, 'partner_ingest_possible_second_mails_total', { cause });
    const before = await counted('ambiguous_data');
    expect(await cliOf(world)('retry', record._id)).toMatchObject({ code: 0 });
    await world.recordIn('completed', record._id);
    expect(mails()).toHaveLength(arrived + 1);
    expect(new Set(mails().map(({ messageId }) => messageId)).size).toBe(1);
    expect(await counted('ambiguous_data')).toBe(before + 1);
    expect(await counted('crash')).toBe(0);
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

/** Begins a fault that also affects open connections. */
async function refuseSessions(fault: SmtpFault): Promise<void> {
  await world.mail.stopListening();
  world.mail.setFault(fault);
  await world.mail.listenAgain();
}

const refused = (at: 'auth' | 'mail', code: number, message: string): Promise<void> =>
  refuseSessions({ at, answer: { code, message } });

test.each([
  ['is away', 0, /the connection is refused/, () => world.mail.stopListening()],
  [
    'refuses our login',
    1,
    /it refuses the login \(535\)/,
    () => refused('auth', 535, '5.7.8 authentication failed'),
  ],
  [
    'refuses our sender',
    1,
    /it refuses our sender \(550\)/,
    () => refused('mail', 550, '5.7.1 Sender refused'),
  ],
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
    expect(await (await fetch(`${processor.adminUrl}/readyz`)).json()).toMatchObject({
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

interface Readiness {
  readonly ok: boolean;
  readonly faults: readonly string[];
  readonly warnings: readonly string[];
}

const readinessOf = async ({ adminUrl }: { readonly adminUrl: string }): Promise<Readiness> =>
  (await (await fetch(`${adminUrl}/readyz`)).json()) as Readiness;

test.each([
  ['login', () => refused('auth', 535, '5.7.8 authentication failed'), /the login \(535\)/],
  ['sender', () => refused('mail', 550, '5.7.1 Sender refused'), /our sender \(550\)/],
] as const)(
  'a processor whose %s is refused since its start is not ready until it is taken',
  async (_name, begin, words) => {
    await begin();
    const late = await startService('processor', processorSettings());
    try {
      const told = await eventually('the refusal', async () => {
        const { faults, ...more } = await readinessOf(late);
        const [fault = '', ...others] = faults;
        return others.length === 0 && words.test(fault) && { faults, ...more };
      });
      expect(told).toMatchObject({
        ok: false,
        faults: [expect.stringMatching(words)],
        warnings: [],
      });
      world.mail.setFault(undefined);
      await late.ready();
      await begin();
      const warned = await eventually('the warning', async () => {
        // Another processor may take it.
        await submit(world, ingest, newApplication());
        const { warnings, ...more } = await readinessOf(late);
        return warnings.length > 0 && { warnings, ...more };
      });
      expect(warned).toMatchObject({ ok: true, faults: [] });
      expect(warned.warnings).toEqual([expect.stringMatching(words)]);
    } finally {
      await late.stop();
    }
  },
);

test('a processor whose relay is away since its start is ready', async () => {
  await world.mail.stopListening();
  const late = await world.spawn('processor', processorSettings());
  expect(await readinessOf(late)).toMatchObject({
    ok: true,
    faults: [],
    warnings: [expect.stringMatching(/the connection is refused/)],
  });
  expect(await late.stop()).toBe(0);
});
