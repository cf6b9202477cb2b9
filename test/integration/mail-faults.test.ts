/**
 * Everything a mail server can do wrong, against the real processor: which state follows, what is
 * counted, how many mails.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { handOversOf } from '../../internal/mail/ledger.ts';
import { pastLockConflicts } from '../../internal/platform/mongo.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { submit } from '../support/processing.ts';
import { faultsOfOneMail, nameOf, wrongPause } from '../support/smtp-faults.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, type InProcess, type World } from '../support/world.ts';

/** PROCESSOR_CONCURRENCY; while mails are slow, twice as many are handed over. */
const PLACES = 16;

let world: World;
let ingest: InProcess;
let processor: InProcess;

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
  processor = await world.start('processor');
});
afterEach(async () => {
  world.mail.setFault(undefined);
  await world.mail.listenAgain();
  // On a slow machine the next attempts would meet the fault of a later test, and add to the
  // answers that blame our sender.
  await pastLockConflicts(() => world.stores.db.collection(SUBMISSIONS).deleteMany({}));
});
afterAll(() => world.close());

/** The record once its first attempt at the e-mail has been settled. */
function settled(requestId: string): Promise<SubmissionRecord> {
  return eventually('the first attempt to be settled', async () => {
    const record = await world.record(requestId);
    if (record === null || record.state === 'recorded') return undefined;
    return record.state !== 'account_created' || record.lastError !== undefined
      ? record
      : undefined;
  });
}

describe('a fault of one mail', () => {
  test.each(faultsOfOneMail.map((row) => [nameOf(row), row.state, row] as const))(
    '%s: %s',
    async (_name, _state, row) => {
      world.mail.setFault(row.fault);
      const application = newApplication();
      const record = await settled(await submit(world, ingest, application));
      world.mail.setFault(undefined);

      expect(record.state).toBe(row.state);
      expect(record.lastError).toContain(row.words);
      expect(record.lastError).not.toMatch(/@|applicant-/);
      expect(world.mail.mailsTo(application.email)).toHaveLength(row.mails ?? 0);
      if (row.keepsPlace === true) {
        expect(record).toMatchObject({ attempts: 0 });
        expect((await world.recordIn('completed', record._id)).attempts).toBe(0);
        expect(world.mail.mailsTo(application.email)).toHaveLength(1);
        const [account] = await world.accounts({ requestId: record._id });
        expect(handOversOf(account?.mail)[0]).toMatchObject(row.ledger);
        expect(account?.mail?.possible).toBe(1);
        return;
      }
      if (row.nextIn === undefined) {
        expect(record.dueAt).toBeUndefined();
        expect(record.expiresAt).toBeInstanceOf(Date);
        expect(record.history.at(-1)).toMatchObject({ state: row.state, reason: record.lastError });
      } else {
        expect(record).toMatchObject({ attempts: row.attempts, ambiguous: row.ambiguous ?? 0 });
        const [account] = await world.accounts({ requestId: record._id });
        expect(wrongPause(row, record, handOversOf(account?.mail)[0])).toBeUndefined();
      }
      const accounts = await world.accounts({ requestId: record._id });
      expect(accounts).toHaveLength(1);
      expect(handOversOf(accounts[0]?.mail)).toEqual([expect.objectContaining(row.ledger)]);
      expect(accounts[0]?.mail?.possible).toBe(row.ledger.result === 'ambiguous' ? 1 : 0);
      // One mail's misfortune holds nobody else up.
      const next = newApplication();
      await world.recordIn('completed', await submit(world, ingest, next));
      expect(world.mail.mailsTo(next.email)).toHaveLength(1);
    },
  );
});

describe('a relay that is away', () => {
  const outages: [string, () => void | Promise<void>, () => void | Promise<void>][] = [
    ['refuses connections', () => world.mail.stopListening(), () => world.mail.listenAgain()],
    [
      'greets with 421',
      async () => {
        // So that no open connection of the pool escapes the greeting.
        await world.mail.stopListening();
        world.mail.setFault({ at: 'connect', answer: { code: 421, message: '4.3.2 closing' } });
        await world.mail.listenAgain();
      },
      () => world.mail.setFault(undefined),
    ],
  ];

  test.each(outages)(
    '%s: accounts are made, mails wait, no attempt counts, then each gets one mail',
    async (_name, begin, end) => {
      await begin();
      const people = Array.from({ length: 20 }, newApplication);
      const ids = await Promise.all(people.map((fields) => submit(world, ingest, fields)));
      const made = () => world.records({ _id: { $in: ids }, state: 'account_created' });
      await eventually('all accounts', async () => (await made()).length === 20);
      await eventually('the pause', async () => {
        return (
          (await world.metric(processor, 'partner_ingest_worker_paused', {
            waits_for: 'relay',
          })) === 1
        );
      });
      expect((await made()).map(({ attempts }) => attempts)).toEqual(people.map(() => 0));

      await end();
      for (const id of ids) expect((await world.recordIn('completed', id)).attempts).toBe(0);
      for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
      expect(await world.records({ _id: { $in: ids }, state: 'completed' })).toHaveLength(20);
      await eventually('the end of the pause', async () => {
        return (
          (await world.metric(processor, 'partner_ingest_worker_paused', {
            waits_for: 'relay',
          })) === 0
        );
      });
    },
  );
});

test('a relay that hangs keeps no account waiting, and leaves a place to another partner', async () => {
  world.mail.setFault({ at: 'rcpt', hang: true });
  // Domains of their own, so that only the slots bound them.
  const people = Array.from({ length: 3 * PLACES }, (_, index) => {
    const { email, ...others } = newApplication();
    return { ...others, email: email.replace('@', `@${index}.`) };
  });
  const ids = await Promise.all(people.map((fields) => submit(world, ingest, fields)));
  await eventually('all accounts, and as many mails as there are places but one', async () => {
    const made = await world.records({ _id: { $in: ids }, state: 'account_created' });
    return made.length === ids.length && (await inHand()).length >= 2 * PLACES - 1;
  });
  expect(await inHand()).toHaveLength(2 * PLACES - 1);
  // Cut off, they end before the world does.
  await world.mail.stopListening();

  /** Of all accounts: a mail of another test that is still in hand takes one of the places. */
  async function inHand() {
    const accounts = await world.accounts({ mail: { $exists: true } });
    return accounts.filter(({ mail }) =>
      handOversOf(mail).some(({ endedAt }) => endedAt === undefined),
    );
  }
});

test('a refused login (AUTH 535) is the relay’s state, not the fault of a mail', async () => {
  const guarded = await openWorld();
  try {
    const guardedIngest = await guarded.start('ingest');
    guarded.mail.setFault({
      at: 'auth',
      answer: { code: 535, message: '5.7.8 authentication failed' },
    });
    const url = guarded.mail.smtpUrl.replace('smtp://', 'smtp://relay-user:relay-password@');
    const sender = await guarded.start('processor', { SMTP_URL: url });
    const application = newApplication();
    const requestId = await submit(guarded, guardedIngest, application);
    const parked = await eventually('the failure', async () => {
      const record = await guarded.record(requestId);
      return record?.lastError === undefined ? undefined : record;
    });
    expect(parked).toMatchObject({ state: 'account_created', attempts: 0 });
    expect(parked.lastError).toContain('EAUTH');
    expect(parked.lastError).not.toMatch(/relay-user|relay-password/);
    await eventually('the pause', async () => {
      return (
        (await guarded.metric(sender, 'partner_ingest_worker_paused', { waits_for: 'relay' })) === 1
      );
    });
    expect(await guarded.metric(sender, 'partner_ingest_sender_refused')).toBe(1);
    guarded.mail.setFault(undefined);
    expect((await guarded.recordIn('completed', requestId)).attempts).toBe(0);
    expect(guarded.mail.mailsTo(application.email)).toHaveLength(1);
  } finally {
    await guarded.close();
  }
});
