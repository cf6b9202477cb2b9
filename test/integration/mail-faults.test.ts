/** Everything a mail server can do wrong, against the real processor: which state follows, what is counted, how many mails. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import type { SmtpFault } from '../../deploy/local/mail-catcher.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { stateCounts, submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, type InProcess, type World } from '../support/world.ts';

/** Jitter of the back-off, and a generous share for a busy machine. */
const SLACK_MS = 5_000;

let world: World;
let ingest: InProcess;
let processor: InProcess;

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
  processor = await world.start('processor');
}, 60_000);
afterEach(() => world.mail.setFault(undefined));
afterAll(() => world.close(), 60_000);

/** The record once its first attempt at the e-mail has been settled. */
function settled(requestId: string): Promise<SubmissionRecord> {
  return eventually(
    'the first attempt to be settled',
    async () => {
      const record = await world.record(requestId);
      if (record === null || record.state === 'recorded') return undefined;
      return record.state !== 'account_created' || record.lastError !== undefined ? record : undefined;
    },
    20_000,
  );
}

interface Row {
  readonly fault: SmtpFault;
  readonly state: SubmissionRecord['state'];
  readonly attempts?: number;
  readonly ambiguous?: number;
  /** Middle of the time until the next attempt, in seconds. */
  readonly nextIn?: number;
  readonly mails?: number;
  readonly words: string;
}

const answer = (
  at: 'connect' | 'mail' | 'rcpt' | 'data-command' | 'data',
  code: number,
  message: string,
): SmtpFault => ({
  at,
  answer: { code, message },
});

const rows: Row[] = [
  {
    fault: answer('rcpt', 450, '4.2.1 mailbox busy'),
    state: 'account_created',
    attempts: 1,
    nextIn: 30,
    words: "refused the applicant's address (450 4.2.1)",
  },
  { fault: answer('rcpt', 451, 'greylisted'), state: 'account_created', attempts: 1, nextIn: 30, words: '(451)' },
  {
    fault: answer('rcpt', 550, '5.1.1 unknown user'),
    state: 'undeliverable',
    words: "refused the applicant's address (550 5.1.1)",
  },
  { fault: answer('rcpt', 550, 'unknown user'), state: 'undeliverable', words: '(550)' },
  { fault: answer('rcpt', 552, '5.2.2 mailbox full'), state: 'undeliverable', words: '(552 5.2.2)' },
  {
    fault: answer('rcpt', 550, '5.7.1 relaying denied'),
    state: 'account_created',
    attempts: 0,
    nextIn: 900,
    words: '(550 5.7.1)',
  },
  {
    fault: answer('mail', 451, '4.3.0 try later'),
    state: 'account_created',
    attempts: 0,
    nextIn: 900,
    words: 'refused our sender address (451 4.3.0)',
  },
  {
    fault: answer('mail', 550, '5.7.1 sender refused'),
    state: 'account_created',
    attempts: 0,
    nextIn: 900,
    words: 'refused our sender address (550 5.7.1)',
  },
  {
    fault: answer('data-command', 451, '4.3.0 no room'),
    state: 'account_created',
    attempts: 1,
    nextIn: 30,
    words: 'refused the mail (451 4.3.0)',
  },
  {
    fault: answer('data', 451, '4.3.0 no room'),
    state: 'account_created',
    attempts: 1,
    nextIn: 30,
    words: 'refused the mail (451 4.3.0)',
  },
  { fault: answer('data', 550, '5.1.1 no'), state: 'undeliverable', words: 'refused the mail (550 5.1.1)' },
  {
    fault: answer('data', 554, '5.7.1 looks like spam'),
    state: 'account_created',
    attempts: 0,
    nextIn: 900,
    words: 'refused the mail (554 5.7.1)',
  },
  {
    fault: { at: 'data', cut: 'before-store' },
    state: 'account_created',
    attempts: 0,
    ambiguous: 1,
    nextIn: 30,
    words: 'ended the connection without an answer',
  },
  {
    fault: { at: 'data', cut: 'after-store' },
    state: 'account_created',
    attempts: 0,
    ambiguous: 1,
    nextIn: 30,
    mails: 1,
    words: 'ended the connection without an answer',
  },
];

describe('a fault of one mail', () => {
  const nameOf = ({ fault }: Row): string =>
    'answer' in fault ? `${fault.at} ${fault.answer.code} ${fault.answer.message}` : JSON.stringify(fault);

  test.each(rows.map((row) => [nameOf(row), row.state, row] as const))('%s: %s', async (_name, _state, row) => {
    world.mail.setFault(row.fault);
    const application = newApplication();
    const record = await settled(await submit(world, ingest, application));
    world.mail.setFault(undefined);

    expect(record.state).toBe(row.state);
    expect(record.lastError).toContain(row.words);
    expect(record.lastError).not.toMatch(/@|applicant-/);
    expect(world.mail.mailsTo(application.email)).toHaveLength(row.mails ?? 0);
    if (row.nextIn === undefined) {
      expect(record.dueAt).toBeUndefined();
      expect(record.expiresAt).toBeInstanceOf(Date);
      expect(record.history.at(-1)).toMatchObject({ state: row.state, reason: record.lastError });
    } else {
      expect(record).toMatchObject({ attempts: row.attempts, ambiguous: row.ambiguous ?? 0 });
      const inMs = (record.dueAt?.getTime() ?? 0) - Date.now();
      expect(inMs).toBeGreaterThan(row.nextIn * 800 - SLACK_MS);
      expect(inMs).toBeLessThan(row.nextIn * 1_200 + SLACK_MS);
    }
    expect(await world.accounts({ requestId: record._id })).toHaveLength(1);
    // One mail's misfortune holds nobody else up.
    const next = newApplication();
    await world.recordIn('completed', await submit(world, ingest, next), 20_000);
    expect(world.mail.mailsTo(next.email)).toHaveLength(1);
  });
});

describe('a relay that is away', () => {
  const outages: [string, () => void | Promise<void>, () => void | Promise<void>][] = [
    ['refuses connections', () => world.mail.stopListening(), () => world.mail.listenAgain()],
    [
      'greets with 421',
      async () => {
        // So that no open connection of the pool escapes the greeting.
        await world.mail.stopListening();
        world.mail.setFault(answer('connect', 421, '4.3.2 closing'));
        await world.mail.listenAgain();
      },
      () => world.mail.setFault(undefined),
    ],
  ];

  test.each(outages)(
    '%s: accounts are made, the worker pauses, no attempt counts, then each gets one mail',
    async (_name, begin, end) => {
      const before = (await stateCounts(world))['completed'] ?? 0;
      await begin();
      const people = Array.from({ length: 20 }, newApplication);
      const ids = await Promise.all(people.map((fields) => submit(world, ingest, fields)));
      await eventually('all accounts', async () => (await world.accounts({ requestId: { $in: ids } })).length === 20);
      await eventually('the pause', async () => {
        return (await world.metric(processor, 'partner_ingest_worker_paused', { queue: 'notifications' })) === 1;
      });
      for (const record of await world.records({ _id: { $in: ids } })) {
        expect(record).toMatchObject({ state: 'account_created', attempts: 0 });
      }

      await end();
      for (const id of ids) expect((await world.recordIn('completed', id, 60_000)).attempts).toBe(0);
      for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
      expect((await stateCounts(world))['completed']).toBe(before + 20);
      expect(await world.metric(processor, 'partner_ingest_worker_paused', { queue: 'notifications' })).toBe(0);
    },
    90_000,
  );
});

test('wrong credentials (AUTH 535) are an outage, not the fault of a mail', async () => {
  const guarded = await openWorld();
  try {
    const door = await guarded.start('ingest');
    guarded.mail.setFault({ at: 'auth', answer: { code: 535, message: '5.7.8 authentication failed' } });
    const url = guarded.mail.smtpUrl.replace('smtp://', 'smtp://relay-user:relay-password@');
    const sender = await guarded.start('processor', { SMTP_URL: url });
    const application = newApplication();
    const requestId = await submit(guarded, door, application);
    const parked = await eventually('the failure', async () => {
      const record = await guarded.record(requestId);
      return record?.lastError === undefined ? undefined : record;
    });
    expect(parked).toMatchObject({ state: 'account_created', attempts: 0 });
    expect(parked.lastError).toContain('EAUTH');
    expect(parked.lastError).not.toMatch(/relay-user|relay-password/);
    expect(await guarded.metric(sender, 'partner_ingest_worker_paused', { queue: 'notifications' })).toBe(1);
    guarded.mail.setFault(undefined);
    expect((await guarded.recordIn('completed', requestId, 30_000)).attempts).toBe(0);
    expect(guarded.mail.mailsTo(application.email)).toHaveLength(1);
  } finally {
    await guarded.close();
  }
}, 60_000);
