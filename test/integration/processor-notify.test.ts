/**
 * The moment between the mail server's 250 and our update: the database may be away then, and still
 * nobody is mailed twice.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { MongoNetworkError, type Collection } from 'mongodb';
import { startMailCatcher, type MailCatcher } from '../support/mail-catcher.ts';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { LedgerStore } from '../../internal/mail/ledger-store.ts';
import type { MailLedger } from '../../internal/account/mail-ledger.ts';
import { handOversOf } from '../../internal/mail/ledger.ts';
import { createMailer, type Mailer } from '../../internal/mail/mailer.ts';
import { relayOf } from '../../internal/mail/relay.ts';
import { loadTemplates } from '../../internal/mail/templates.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { RelayState } from '../../internal/mail/relay-state.ts';
import { BACKED_OFF_AT_MOST_MS, CLAIM_FRESH_MS } from '../../internal/processor/limits.ts';
import type { MailPlace } from '../../internal/processor/mail-line.ts';
import {
  processSubmission,
  type AttemptTools,
} from '../../internal/processor/process-submission.ts';
import type { Hint } from '../../internal/queue/job.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { PartnerLabels } from '../../internal/telemetry/partner-labels.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { makeIndexes, recordOf } from '../support/processor-records.ts';
import { faultsOfTheServer, nameOf, wrongPause } from '../support/smtp-faults.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { HANG_MS } from '../support/wait.ts';
import { newApplication } from '../support/world.ts';

const templates = await loadTemplates();

let stores: TestStores;
let collection: Collection<SubmissionRecord>;
let catcher: MailCatcher;
let mailer: Mailer;
let accounts: AccountStore;
let ledger: FailingLedger;

beforeAll(async () => {
  stores = await openTestStores();
  collection = await makeIndexes(stores);
  catcher = await startMailCatcher();
  mailer = createMailer({
    relay: relayOf(catcher.smtpUrl, 'auto'),
    from: 'a@partner.example',
    maxConnections: 2,
  });
  accounts = new AccountStore({ db: stores.db, clock });
  ledger = new FailingLedger({ db: stores.db, clock });
});
afterEach(() => catcher.setFault(undefined));
afterAll(async () => {
  mailer.close();
  await catcher.close();
  await stores.close();
});

/** The real store, whose moves fail as often as the test says, before or after they took effect. */
class FailingStore extends WorkerMoves {
  failures = 0;
  afterEffect = false;
  override async move(...move: Parameters<WorkerMoves['move']>): ReturnType<WorkerMoves['move']> {
    if (this.failures === 0) return super.move(...move);
    this.failures -= 1;
    if (this.afterEffect) await super.move(...move);
    throw new MongoNetworkError('connection closed');
  }
}

/** The real ledger, whose note that the mail is out fails as often as the test says. */
class FailingLedger extends LedgerStore {
  failures = 0;
  override async endHandOver(
    ...given: Parameters<LedgerStore['endHandOver']>
  ): Promise<MailLedger | undefined> {
    if (this.failures === 0) return super.endHandOver(...given);
    this.failures -= 1;
    throw new MongoNetworkError('connection closed');
  }
}

function newTools() {
  const counted = { attempts: [] as string[], secondMails: [] as string[], waits: 0 };
  const measured: { result: string; seconds: number }[] = [];
  const store = new FailingStore({
    db: stores.db,
    retention: { completed: 1, rejected: 1, undeliverable: 1 },
    clock,
  });
  const tools: AttemptTools = {
    store,
    holds: { has: () => false, partners: () => [] },
    line: { tryNow: () => false, add: () => {} },
    duplicateKeys: { inc: () => {} },
    waitForDatabase: () => void (counted.waits += 1),
    accounts,
    ledger,
    mailer,
    clock,
    log: createLogger('test', 'silent'),
    mailSettings: {
      from: 'a@partner.example',
      loginUrl: 'https://login.example/',
      linkSecret: 'a-secret-for-tests-of-32-characters-or-more',
      templates,
    },
    host: 'processor-1',
    mails: { inc: () => {} },
    handOverSeconds: { observe: ({ result }, seconds) => void measured.push({ result, seconds }) },
    possibleSecondMails: { inc: ({ cause }) => void counted.secondMails.push(cause) },
    outcomes: { inc: () => {} },
    partnerOutcomes: { inc: () => {} },
    partnerLabels: new PartnerLabels(),
    failures: { inc: () => {} },
    attempts: { inc: ({ result }) => void counted.attempts.push(result) },
    completionSeconds: { observe: () => {} },
  };
  return { tools, store, counted, measured };
}

/** Works on the record at a place of a line that nobody else stands in. */
function mailHinted(hint: Hint, tools: AttemptTools): Promise<void> {
  const relay = new RelayState(0);
  const addressed = { partnerId: 'demo', domain: 'example.com', startedAtMs: clock.monotonicMs() };
  const place: MailPlace = {
    note: (handOver, dropped) =>
      relay.note(addressed, handOver, { nowMs: clock.monotonicMs(), dropped }),
  };
  return processSubmission(hint, tools, place);
}

async function newAccount(
  more: Partial<SubmissionRecord> = {},
): Promise<{ record: SubmissionRecord; email: string }> {
  const application = newApplication();
  const record = recordOf(application, clock.now(), {
    state: 'account_created',
    version: 1,
    ...more,
  });
  const { email, business_name: businessName, ein } = application;
  const fact = await accounts.create(
    { email, businessName, ein },
    { requestId: record._id, partnerId: 'demo' },
  );
  if (fact.kind !== 'created') throw new Error('not created');
  const stored = { ...record, accountId: fact.accountId };
  await collection.insertOne(stored);
  return { record: stored, email };
}

/**
 * Claim and result of each hand-over in the account's ledger, and how many of them may have
 * arrived.
 */
async function ledgerOf(
  record: SubmissionRecord,
): Promise<{ entries: string[]; possible: number | undefined }> {
  const mail = (await accounts.read(record.accountId!))?.mail;
  return {
    entries: handOversOf(mail).map(({ claim, result }) => `${claim} ${result}`),
    possible: mail?.possible,
  };
}

/** Lets the time pass that the present claim on the record holds. */
const runOut = (record: SubmissionRecord) =>
  collection.updateOne({ _id: record._id }, { $set: { claimedUntil: clock.now() } });

const read = async (record: SubmissionRecord): Promise<SubmissionRecord> =>
  (await collection.findOne({ _id: record._id }))!;

test('a database that is away just after the 250 is waited for: one mail, completed, no failed attempt', async () => {
  const { tools, counted } = newTools();
  const { record, email } = await newAccount();
  ledger.failures = 3;
  await mailHinted({ requestId: record._id, version: 1 }, tools);
  expect(await read(record)).toMatchObject({ state: 'completed', attempts: 0 });
  expect(catcher.mailsTo(email)).toHaveLength(1);
  expect(counted).toEqual({ attempts: ['done'], secondMails: [], waits: 3 });
  expect(await ledgerOf(record)).toEqual({ entries: ['2 accepted'], possible: 1 });
});

test('the time of each hand-over is measured, by its result', async () => {
  const { tools, measured } = newTools();
  // Whole milliseconds: fractions would not add up to 2.5 s.
  let now = Math.round(clock.monotonicMs());
  const handOver: Mailer['handOver'] = async (...given) => {
    now += 2_500;
    return mailer.handOver(...given);
  };
  const slow = {
    ...tools,
    mailer: { ...mailer, handOver },
    clock: { ...clock, monotonicMs: () => now },
  };
  const { record } = await newAccount();
  catcher.setFault({ at: 'rcpt', answer: { code: 451, message: '4.3.0 later' } });
  await mailHinted({ requestId: record._id, version: 1 }, slow);
  catcher.setFault(undefined);
  await mailHinted({ requestId: record._id, version: 2 }, slow);
  expect(measured).toEqual([
    { result: 'refused', seconds: 2.5 },
    { result: 'accepted', seconds: 2.5 },
  ]);
});

test('a mail that the account knows of is not sent again: the next attempt only completes', async () => {
  const { tools, store, counted } = newTools();
  const { record, email } = await newAccount();
  store.failures = 1;
  await mailHinted({ requestId: record._id, version: 1 }, tools);
  expect(await read(record)).toMatchObject({ state: 'account_created', attempts: 0, version: 2 });
  await mailHinted({ requestId: record._id, version: 2 }, tools);
  expect(await read(record)).toMatchObject({ state: 'completed', attempts: 0 });
  expect(catcher.mailsTo(email)).toHaveLength(1);
  expect(counted.attempts).toEqual(['failed', 'done']);
});

test('an update that took effect although its answer was lost is not done twice', async () => {
  const { tools, store } = newTools();
  const { record, email } = await newAccount();
  [store.failures, store.afterEffect] = [1, true];
  await mailHinted({ requestId: record._id, version: 1 }, tools);
  const { state, history } = await read(record);
  expect(state).toBe('completed');
  expect(history.filter((entry) => entry.state === 'completed')).toHaveLength(1);
  expect(catcher.mailsTo(email)).toHaveLength(1);
});

test('the same hint many times at once mails once', async () => {
  const { tools, counted } = newTools();
  const { record, email } = await newAccount();
  await Promise.all(
    Array.from({ length: 10 }, () => mailHinted({ requestId: record._id, version: 1 }, tools)),
  );
  expect(counted.attempts.toSorted()).toEqual([
    'done',
    ...Array.from({ length: 9 }, () => 'repeat'),
  ]);
  expect(catcher.mailsTo(email)).toHaveLength(1);
});

test('a claim that is lost just before the mail stops without a trace', async () => {
  const { tools, store, counted } = newTools();
  const { record, email } = await newAccount();
  const beginHandOver = ledger.beginHandOver.bind(ledger);
  let lateMs = 0;
  const robbed = Object.assign(Object.create(ledger) as LedgerStore, {
    endHandOver: ledger.endHandOver.bind(ledger),
    beginHandOver: async (...given: Parameters<typeof beginHandOver>) => {
      const begun = await beginHandOver(...given);
      await runOut(record);
      await store.claim(record._id, 2);
      lateMs = CLAIM_FRESH_MS + 1;
      return begun;
    },
  });
  const late = { ...clock, monotonicMs: () => clock.monotonicMs() + lateMs };
  await mailHinted(
    { requestId: record._id, version: 1 },
    { ...tools, ledger: robbed, clock: late },
  );
  expect(counted.attempts).toEqual(['claim_lost']);
  expect(catcher.mailsTo(email)).toHaveLength(0);
  expect(await ledgerOf(record)).toEqual({ entries: ['2 aborted'], possible: 0 });
  const { lastError: _, ...after } = await read(record);
  expect(after).toMatchObject({ state: 'account_created', version: 3, attempts: 0 });
});

test.each([
  [{ ambiguous: 1 }, 'account_created', 2],
  [{ ambiguous: 2 }, 'dead_lettered', 3],
])('after an ambiguous mail (%j) another one ends %s', async (before, state, ambiguous) => {
  const { tools } = newTools();
  const { record, email } = await newAccount(before);
  catcher.setFault({ at: 'data', cut: 'after-store' });
  await mailHinted({ requestId: record._id, version: 1 }, tools);
  catcher.setFault(undefined);
  expect(await read(record)).toMatchObject({ state, ambiguous });
  expect(catcher.mailsTo(email)).toHaveLength(1);
});

test('both windows that may mail twice are in the ledger and counted by cause', async () => {
  const { tools, counted } = newTools();
  const { record, email } = await newAccount();
  catcher.setFault({ at: 'data', cut: 'after-store' });
  await mailHinted({ requestId: record._id, version: 1 }, tools);
  catcher.setFault(undefined);
  // The second process is frozen between the 250 and its note, as if dead; it wakes up at the end.
  const thaw = Promise.withResolvers<void>();
  const freezing = Object.assign(Object.create(ledger) as LedgerStore, {
    beginHandOver: ledger.beginHandOver.bind(ledger),
    endHandOver: async (...given: Parameters<LedgerStore['endHandOver']>) => {
      await thaw.promise;
      return ledger.endHandOver(...given);
    },
  });
  const frozen = mailHinted({ requestId: record._id, version: 2 }, { ...tools, ledger: freezing });
  await catcher.waitForMail(() => catcher.mailsTo(email).length === 2, HANG_MS);
  await runOut(record);
  await mailHinted({ requestId: record._id, version: 3 }, tools);
  expect(catcher.mailsTo(email)).toHaveLength(3);
  expect(new Set(catcher.mailsTo(email).map(({ messageId }) => messageId)).size).toBe(1);
  expect(await ledgerOf(record)).toEqual({
    entries: ['2 ambiguous', '3 undefined', '4 accepted'],
    possible: 3,
  });
  expect(counted.secondMails).toEqual(['ambiguous_data', 'crash']);
  thaw.resolve();
  await frozen;
  expect(await ledgerOf(record)).toEqual({
    entries: ['2 ambiguous', '3 accepted', '4 accepted'],
    possible: 3,
  });
  expect(counted.secondMails).toHaveLength(2);
});

test('a database that is away before the mail: none goes out, and none counts as possible', async () => {
  const { tools } = newTools();
  const { record, email } = await newAccount();
  const failing = Object.assign(Object.create(ledger) as LedgerStore, {
    endHandOver: ledger.endHandOver.bind(ledger),
    beginHandOver: async (...given: Parameters<LedgerStore['beginHandOver']>) => {
      await ledger.beginHandOver(...given);
      throw new MongoNetworkError('the answer was lost');
    },
  });
  await mailHinted({ requestId: record._id, version: 1 }, { ...tools, ledger: failing });
  expect(catcher.mailsTo(email)).toHaveLength(0);
  expect(await ledgerOf(record)).toEqual({ entries: ['2 aborted'], possible: 0 });
});

describe('a server that is away or silent', () => {
  // A login, so that there is an AUTH to refuse; and no more patience than a busy machine asks for.
  const limits = {
    connectMs: 1_500,
    beforeContentMs: 2_000,
    afterContentMs: 1_000,
    idleMs: 60_000,
  };
  test.each(faultsOfTheServer.map((row) => [nameOf(row), row] as const))(
    '%s',
    async (_name, row) => {
      const { tools } = newTools();
      const url = catcher.smtpUrl.replace('smtp://', 'smtp://user:password@');
      const impatient = createMailer({
        relay: relayOf(url, 'auto'),
        from: 'a@partner.example',
        maxConnections: 1,
        limits,
      });
      const { record, email } = await newAccount();
      catcher.setFault(row.fault);
      await mailHinted({ requestId: record._id, version: 1 }, { ...tools, mailer: impatient });
      catcher.setFault(undefined);
      impatient.close();
      const after = await read(record);
      expect(after).toMatchObject({ state: row.state, attempts: row.attempts });
      expect(after.ambiguous ?? 0).toBe(row.ambiguous ?? 0);
      expect(after.lastError).toContain(row.words);
      expect(catcher.mailsTo(email)).toHaveLength(row.mails ?? 0);
      const account = await accounts.read(record.accountId!);
      if (row.keepsPlace === true) expect(after.dueAt).toEqual(after.stateAt);
      else expect(wrongPause(row, after, handOversOf(account?.mail)[0])).toBeUndefined();
      expect(handOversOf(account?.mail)).toEqual([expect.objectContaining(row.ledger)]);
      expect(account?.mail?.possible).toBe(row.ledger.result === 'ambiguous' ? 1 : 0);
    },
  );
});

test.each([
  [BACKED_OFF_AT_MOST_MS - 1, 'account_created'],
  [BACKED_OFF_AT_MOST_MS, 'dead_lettered'],
])(
  'after %i ms of its own back-off another transient failure ends %s',
  async (backedOffMs, state) => {
    const { tools } = newTools();
    const { record } = await newAccount({ attempts: 26, backedOffMs });
    await stores.db.collection<Account>(ACCOUNTS).deleteOne({ requestId: record._id });
    await mailHinted({ requestId: record._id, version: 1 }, tools);
    const after = await read(record);
    expect(after).toMatchObject({ state, lastError: expect.stringContaining('was not found') });
    if (state === 'dead_lettered') {
      expect(after.dueAt).toBeUndefined();
      expect(after.expiresAt).toBeUndefined();
      expect(after.history.at(-1)).toMatchObject({ state, attempt: 27 });
    } else expect(after.backedOffMs).toBeGreaterThan(BACKED_OFF_AT_MOST_MS);
  },
);

test('neither age nor a hold makes a dead letter: only the time of a record’s own failures counts', async () => {
  const { tools } = newTools();
  catcher.setFault({ at: 'rcpt', answer: { code: 450, message: '4.2.1 busy' } });
  const { record } = await newAccount({
    stateAt: new Date(Date.now() - 2 * BACKED_OFF_AT_MOST_MS),
  });
  await mailHinted({ requestId: record._id, version: 1 }, tools);
  expect(await read(record)).toMatchObject({ state: 'account_created', attempts: 0 });
  const { record: failing } = await newAccount({ backedOffMs: BACKED_OFF_AT_MOST_MS });
  await mailHinted({ requestId: failing._id, version: 1 }, tools);
  expect(await read(failing)).toMatchObject({
    state: 'dead_lettered',
    attempts: 0,
    lastError: expect.stringContaining('450 4.2.1'),
  });
  catcher.setFault(undefined);
});

test('a record whose workers died five times is a dead letter; before that it is tried apart', async () => {
  const { tools, counted } = newTools();
  const dead = { claimedUntil: new Date(Date.now() - 1_000) };
  const { record: poisonous, email } = await newAccount({ ...dead, crashes: 4 });
  await mailHinted({ requestId: poisonous._id, version: 1 }, tools);
  expect(await read(poisonous)).toMatchObject({
    state: 'dead_lettered',
    lastError: expect.stringContaining('ended without a word'),
  });
  expect(catcher.mailsTo(email)).toHaveLength(0);

  const { record: beside } = await newAccount({ ...dead, crashes: 1 });
  await mailHinted({ requestId: beside._id, version: 1 }, tools);
  const apart = await read(beside);
  expect(apart).toMatchObject({ state: 'account_created', version: 2, crashes: 2 });
  expect(apart.claimedUntil).toBeUndefined();
  await mailHinted({ requestId: beside._id, version: 2 }, tools);
  expect(await read(beside)).toMatchObject({ state: 'completed' });
  expect(counted.attempts).toEqual(['done']);
});

test('an account that cannot be found is no reason to forget the request', async () => {
  const { tools } = newTools();
  const { record } = await newAccount({});
  await stores.db.collection<Account>(ACCOUNTS).deleteOne({ requestId: record._id });
  await mailHinted({ requestId: record._id, version: 1 }, tools);
  expect(await read(record)).toMatchObject({ state: 'account_created', attempts: 1 });
});
