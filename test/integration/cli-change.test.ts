/**
 * What operators change: retry, resend, a corrected address, a released account; by the real
 * command, done by the real processor.
 */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { AccountQueries } from '../../internal/account/account-queries.ts';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { discardedReason } from '../../internal/application/reasons.ts';
import { correctEmail } from '../../internal/cli/account.ts';
import type { Call } from '../../internal/cli/command.ts';
import { utc } from '../../internal/cli/timeline.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import { LedgerStore } from '../../internal/mail/ledger-store.ts';
import { newId } from '../../internal/platform/ids.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import type { TrailEntry } from '../../internal/audit/entry.ts';
import { OPERATOR_AUDIT, Trail } from '../../internal/audit/trail.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { CLAIM_MS } from '../../internal/submission/limits.ts';
import { BACKED_OFF_AT_MOST_MS, MAX_AMBIGUOUS } from '../../internal/processor/limits.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { openOperatorWorld, spawnCli, type Ran } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { wrongClock } from '../support/wrong-clock.ts';
import { newApplication, type InProcess, type World } from '../support/world.ts';

let world: World;
let ingest: InProcess;
let cli: (...words: string[]) => Promise<Ran>;

beforeAll(async () => {
  ({ world, ingest, cli } = await openOperatorWorld());
});
// A query of one test finds nothing of another.
afterEach(async () => {
  world.mail.setFault(undefined);
  for (const name of [SUBMISSIONS, ACCOUNTS]) await world.stores.db.collection(name).deleteMany({});
});
afterAll(() => world.close());

const requests = () => world.stores.db.collection<SubmissionRecord>(SUBMISSIONS);
const accountOf = (requestId: string) =>
  world.stores.db.collection<Account>(ACCOUNTS).findOne({ requestId });
const trailOf = (requestId: string) =>
  world.stores.db
    .collection<TrailEntry>(OPERATOR_AUDIT)
    .find({ requestId, result: { $ne: 'begun' } })
    .sort({ _id: 1 })
    .toArray();
const busy = { at: 'rcpt', answer: { code: 450, message: '4.2.1 try later' } } as const;
const unknownUser = { at: 'rcpt', answer: { code: 550, message: '5.1.1 unknown user' } } as const;

async function completed(): Promise<{
  id: string;
  application: ReturnType<typeof newApplication>;
}> {
  const application = newApplication();
  const id = await submit(world, ingest, application);
  await world.recordIn('completed', id);
  return { id, application };
}

function tokenHashOf(mail: { readonly links: readonly string[] } | undefined): string {
  const link = new URL(mail?.links.find((url) => url.includes('token=')) ?? '');
  return createHash('sha256')
    .update(link.searchParams.get('token') ?? '')
    .digest('hex');
}

test('retry: a waiting request at once, then a dead letter; each with its place in history and the trail', async () => {
  const application = newApplication();
  world.mail.setFault(busy);
  const id = await submit(world, ingest, application);
  await eventually(
    'the first attempt to fail',
    async () => (await world.record(id))?.lastError !== undefined,
  );
  // The next attempt is its last, and comes by our hand instead of in 30 s.
  await requests().updateOne({ _id: id }, { $set: { backedOffMs: BACKED_OFF_AT_MOST_MS } });
  expect(await cli('retry', id)).toMatchObject({ code: 0 });
  await world.recordIn('dead_lettered', id);
  expect((await cli('show', id)).stdout).toMatch(/given up: the mail server did not accept/);
  expect((await cli('find', '--state', 'dead_lettered', '--json')).json()).toMatchObject([
    { request_id: id },
  ]);

  world.mail.setFault(undefined);
  const retried = await cli('retry', id, '--as', 'jane', '--why', 'relay is back', '--json');
  expect(retried.json()).toEqual({ request_id: id, from: 'dead_lettered', to: 'account_created' });
  const record = await world.recordIn('completed', id);
  expect(record.history.map(({ state, reason }) => [state, reason])).toEqual([
    ['recorded', undefined],
    ['account_created', undefined],
    ['dead_lettered', expect.stringContaining('450')],
    ['account_created', 'operator retry by jane'],
    ['completed', undefined],
  ]);
  expect(record).toMatchObject({ expiresAt: expect.any(Date), attempts: 0 });
  expect(record.dueAt).toBeUndefined();
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
  expect(await trailOf(id)).toMatchObject([
    { action: 'retry', by: 'test-operator', result: 'done' },
    { action: 'retry', by: 'jane', why: 'relay is back', result: 'done' },
  ]);

  const refused = await cli('retry', id);
  expect(refused).toMatchObject({ code: 1, stdout: '' });
  expect(refused.stderr).toMatch(/is completed .*nothing to retry\n$/);
});

test('retry is refused while a worker has the request in hand, with the time when it is free', async () => {
  const application = newApplication();
  world.mail.setFault(busy);
  const id = await submit(world, ingest, application);
  await eventually(
    'the first attempt to fail',
    async () => (await world.record(id))?.lastError !== undefined,
  );
  const claimedUntil = new Date(Date.now() + CLAIM_MS);
  const version = (await world.record(id))?.version;
  await requests().updateOne({ _id: id }, { $set: { claimedUntil, dueAt: claimedUntil } });
  const refused = await cli('retry', id);
  expect(refused).toMatchObject({ code: 1, stdout: '' });
  expect(refused.stderr).toContain(`is being worked on: it is free at ${utc(claimedUntil)} UTC`);
  expect((await cli('show', id)).stdout).toContain(
    `a processor is working on it, until ${utc(claimedUntil)} UTC or longer`,
  );
  expect(await world.record(id)).toMatchObject({ version, claimedUntil });
  expect(await trailOf(id)).toEqual([]);
});

test('retry and close are refused where the clock is wrong, because a claim ends by the clock', async () => {
  const { id } = await completed();
  await requests().updateOne(
    { _id: id },
    { $set: { state: 'account_created', dueAt: new Date(Date.now() + HANG_MS) } },
  );
  for (const words of [
    ['retry', id],
    ['close', id, '--yes', '--why', 'x'],
  ]) {
    const wrong = await spawnCli({ ...world.environment, ...wrongClock(60) }, '', ...words);
    expect(wrong).toMatchObject({ code: 1, stdout: '' });
    expect(wrong.stderr).toMatch(/the clock here is (59|60) s ahead of the database's: give the/);
  }
});

test('retry of many: a list without --yes, done with it, and only what can be retried', async () => {
  const ids: string[] = [];
  world.mail.setFault(unknownUser);
  for (let index = 0; index < 3; index += 1)
    ids.push(await submit(world, ingest, newApplication()));
  for (const id of ids) await world.recordIn('undeliverable', id);
  world.mail.setFault(undefined);
  expect(await cli('erase', ids[0] ?? '', '--yes')).toMatchObject({ code: 0 });

  const dry = await cli('retry', '--state', 'undeliverable');
  expect(dry).toMatchObject({ code: 0 });
  expect(dry.stdout).toContain('2 would be retried; add --yes');
  expect(dry.stdout).toContain('was erased');
  expect(await requests().countDocuments({ _id: { $in: ids }, state: 'undeliverable' })).toBe(3);

  expect((await cli('retry', '--state', 'undeliverable', '--yes')).stdout).toContain('2 retried');
  for (const id of ids.slice(1)) await world.recordIn('completed', id);
  expect(await cli('retry', '--state', 'dead_lettered', '--since', '1s')).toMatchObject({
    code: 1,
  });
});

test('retry of many: an e-mail that may have gone out three times is sent again all the same', async () => {
  world.mail.setFault({ at: 'data', cut: 'before-store' });
  const application = newApplication();
  const id = await submit(world, ingest, application);
  for (let cut = 1; cut < MAX_AMBIGUOUS; cut += 1) {
    await eventually(`cut ${cut}`, async () => (await world.record(id))?.ambiguous === cut);
    expect(await cli('retry', id)).toMatchObject({ code: 0 });
  }
  await world.recordIn('dead_lettered', id);
  world.mail.setFault(undefined);
  expect((await cli('retry', '--state', 'dead_lettered', '--yes')).stdout).toContain('1 retried');
  await eventually('its mail', async () => world.mail.mailsTo(application.email).length === 1);
  await world.recordIn('completed', id);
});

test('resend: nothing without --yes; then the same link once more, in a mail of its own, noted as resent and not as a fault', async () => {
  const { id, application } = await completed();
  const dry = await cli('resend', id);
  expect(dry).toMatchObject({ code: 0 });
  expect(dry.stdout).toContain('nothing was changed; add --yes');
  expect(dry.stdout).not.toContain(application.email);
  expect((await world.record(id))?.state).toBe('completed');
  expect(await trailOf(id)).toEqual([]);

  expect(await cli('resend', id, '--yes')).toMatchObject({ code: 0 });
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  await world.recordIn('completed', id);
  const [first, second] = world.mail.mailsTo(application.email);
  expect(tokenHashOf(second)).toBe(tokenHashOf(first));
  expect(tokenHashOf(second)).toBe((await accountOf(id))?.activation?.tokenHash);
  expect(second?.messageId).not.toBe(first?.messageId);
  expect((await cli('show', id)).stdout).toContain(
    'waits to be mailed again: operator resend by test-operator',
  );

  // A used link is not made to work again.
  await world.stores.db
    .collection(ACCOUNTS)
    .updateOne({ requestId: id }, { $unset: { activation: true } });
  const refused = await cli('resend', id, '--yes');
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.stderr).toContain('has been used');
});

test('correct-email: nothing without --yes; then a new link to the new address, and the old link is void', async () => {
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  const dry = await cli('account', 'correct-email', id, address);
  expect(dry).toMatchObject({ code: 0 });
  expect(dry.stdout).toContain('nothing was changed; add --yes');
  // The operator sees what they gave; the old address, programs and the trail's copy stay masked.
  expect(dry.stdout).toContain(`a***@e***.com → ${address} and a new link`);
  expect((await cli('account', 'correct-email', id, address, '--json')).stdout).not.toContain(
    address,
  );
  expect((await accountOf(id))?.email).toBe(application.email);
  expect(await trailOf(id)).toEqual([]);

  const corrected = await cli('account', 'correct-email', id, address, '--yes');
  expect(corrected).toMatchObject({ code: 0 });
  expect(corrected.stdout).toContain(`a***@e***.com → ${address}; the old link is void`);
  expect(corrected.stdout).toContain('it is due now');
  expect(corrected.stderr).not.toContain(address);
  expect(JSON.stringify(await trailOf(id))).not.toContain(address);
  const mail = await world.mail.waitForMail((caught) => caught.to.includes(address), HANG_MS);
  await world.recordIn('completed', id);
  const account = await accountOf(id);
  expect(account).toMatchObject({ email: address, emailNormalized: address, ein: application.ein });
  expect(account?.activation?.tokenHash).toBe(tokenHashOf(mail));
  expect(tokenHashOf(mail)).not.toBe(tokenHashOf(world.mail.mailsTo(application.email)[0]));
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
  expect((await cli('find', '--email', address, '--json')).json()).toMatchObject([
    { request_id: id },
  ]);
});

test('correct-email of an undeliverable and of a still failing request; another account keeps its address', async () => {
  const other = await completed();
  for (const [fault, state] of [
    [unknownUser, 'undeliverable'],
    [busy, 'account_created'],
  ] as const) {
    const application = newApplication();
    world.mail.setFault(fault);
    const id = await submit(world, ingest, application);
    await eventually(`${state} with an error`, async () => {
      const record = await world.record(id);
      return record?.state === state && record.lastError !== undefined;
    });
    world.mail.setFault(undefined);
    const taken = await cli(
      'account',
      'correct-email',
      id,
      other.application.email.toUpperCase(),
      '--yes',
    );
    expect(taken).toMatchObject({ code: 1, stdout: '' });
    expect(taken.stderr).toContain(`belongs to another account (${other.id})`);

    const address = `right-${application.email}`;
    expect(await cli('account', 'correct-email', id, address, '--yes')).toMatchObject({ code: 0 });
    await world.recordIn('completed', id);
    expect(world.mail.mailsTo(address)).toHaveLength(1);
    expect(world.mail.mailsTo(application.email)).toHaveLength(0);
  }
});

test('correct-email given again finishes what was cut off: after the account, and after the e-mail of its own accord', async () => {
  const corrections = new AccountCorrections({ db: world.stores.db, clock });
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  // Cut off after its first write: nobody mails the new address, and the request is found by the
  // old one.
  await corrections.correctEmail((await accountOf(id))!, address);
  expect((await world.record(id))?.state).toBe('completed');
  const dry = await cli('account', 'correct-email', id, address);
  expect(dry.stdout).toContain('was cut off: it is finished and a new link is mailed');
  expect(await cli('account', 'correct-email', id, address, '--yes')).toMatchObject({ code: 0 });
  const mail = await world.mail.waitForMail((caught) => caught.to.includes(address), HANG_MS);
  await world.recordIn('completed', id);
  expect((await accountOf(id))?.activation?.tokenHash).toBe(tokenHashOf(mail));
  expect(await accountOf(id)).toMatchObject({ linkVersion: 1, mailVersion: 1 });
  expect((await cli('find', '--email', address, '--json')).json()).toMatchObject([
    { request_id: id },
  ]);
  const done = await cli('account', 'correct-email', id, address, '--yes');
  expect(done).toMatchObject({ code: 1, stdout: '' });
  expect(done.stderr).toContain('has this address already');

  // Cut off at the same place with work ahead: the processor mails the new address by itself, only
  // the record is left.
  const other = newApplication();
  world.mail.setFault(busy);
  const waiting = await submit(world, ingest, other);
  await eventually(
    'a failed attempt',
    async () => (await world.record(waiting))?.lastError !== undefined,
  );
  await corrections.correctEmail((await accountOf(waiting))!, `right-${other.email}`);
  world.mail.setFault(undefined);
  expect(await cli('retry', waiting)).toMatchObject({ code: 0 });
  await world.recordIn('completed', waiting);
  const again = await cli('account', 'correct-email', waiting, `right-${other.email}`, '--yes');
  expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing is mailed') });
  expect(await world.record(waiting)).toMatchObject({
    state: 'completed',
    applicant: { email: `right-${other.email}` },
  });
  expect(world.mail.mailsTo(`right-${other.email}`)).toHaveLength(1);
  expect(await trailOf(waiting)).toMatchObject([
    { action: 'retry' },
    { action: 'account correct-email', result: 'done' },
  ]);
});

/**
 * The command, given by an operator whose moves others cut in on: `cutIn` comes before each
 * reopening.
 */
async function overtaken(
  cutIn: (id: string) => Promise<unknown>,
  ...positionals: string[]
): Promise<number> {
  const { db } = world.stores;
  const retention = {};
  class Overtaken extends OperatorMoves {
    override async reopen(...[record, ...rest]: Parameters<OperatorMoves['reopen']>) {
      await cutIn(record._id);
      return super.reopen(record, ...rest);
    }
  }
  const desk = {
    submissions: new SupportQueries(db),
    accounts: new AccountQueries(db),
    holds: new PartnerHolds({ db, clock }),
    moves: new Overtaken({ db, retention, clock }),
    corrections: new AccountCorrections({ db, clock }),
    trail: new Trail({ db, clock, by: 'jane', nameFrom: '--as', copy: () => {} }),
  };
  const call = { positionals, values: { yes: true }, desk, clock, out: { line: () => {} } };
  return correctEmail.run(call as unknown as Call);
}

test('correct-email says what it did to the account, also when the request is moved meanwhile', async () => {
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  let times = 0;
  const touch = (requestId: string) =>
    requests().updateOne({ _id: requestId }, { $inc: { version: 1 } });
  // Somebody is faster once: the command goes on from what is there now.
  expect(await overtaken(async (_id) => (times += 1) === 1 && touch(_id), id, address)).toBe(0);
  await world.mail.waitForMail((caught) => caught.to.includes(address), HANG_MS);
  await world.recordIn('completed', id);

  // Somebody is always faster: the answer names what has changed and what is left.
  const second = `second-${application.email}`;
  await expect(overtaken(touch, id, second)).rejects.toThrow(
    /has the address and its old link is void.*same command/,
  );
  expect(await accountOf(id)).toMatchObject({ email: second, linkVersion: 2 });
  expect((await trailOf(id)).at(-1)).toMatchObject({
    action: 'account correct-email',
    result: 'done',
  });
  expect(await cli('account', 'correct-email', id, second, '--yes')).toMatchObject({ code: 0 });
  await world.mail.waitForMail((caught) => caught.to.includes(second), HANG_MS);
  await world.recordIn('completed', id);

  // A discarded request mails nobody, so its account keeps its address.
  await requests().updateOne(
    { _id: id },
    { $set: { state: 'rejected', reasons: [discardedReason] } },
  );
  const before = await accountOf(id);
  const refused = await cli('account', 'correct-email', id, `third-${application.email}`, '--yes');
  expect(refused).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('is rejected'),
  });
  expect(await accountOf(id)).toEqual(before);
});

test('release: the use of a link stays noted, and an unused link ends', async () => {
  const { id } = await completed();
  const usedAt = new Date(Date.now() - 1_000);
  const used = { _id: (await accountOf(id))!._id };
  await world.stores.db
    .collection<Account>(ACCOUNTS)
    .updateOne(used, { $set: { 'activation.usedAt': usedAt } });
  const { activation } = (await accountOf(id))!;
  expect(await cli('account', 'release', id, '--yes')).toMatchObject({ code: 0 });
  expect(await accountOf(id)).toMatchObject({ releasedAt: expect.any(Date), activation });
  expect(activation).toMatchObject({ usedAt });
});

test('release: the EIN and the address may be applied with again; the account stays and the trail tells', async () => {
  const { id, application } = await completed();
  const again = await submit(world, ingest, application);
  await world.recordIn('rejected', again);
  expect((await cli('account', 'release', id)).stdout).toContain('add --yes');
  expect((await accountOf(id))?.ein).toBe(application.ein);

  expect(
    await cli('account', 'release', id, '--yes', '--why', 'EIN of another business'),
  ).toMatchObject({ code: 0 });
  const account = await accountOf(id);
  expect(account).toMatchObject({
    releasedAt: expect.any(Date),
    released: {
      email: application.email,
      ein: application.ein,
      businessName: application.business_name,
    },
  });
  expect(account?.activation).toBeUndefined();
  const third = await submit(world, ingest, application);
  await world.recordIn('completed', third);
  expect(world.mail.mailsTo(application.email)).toHaveLength(2);

  expect((await cli('show', id)).stdout).toContain(
    'operator test-operator: account release (EIN of another business)',
  );
  for (const words of [
    ['account', 'release', id, '--yes'],
    ['resend', id, '--yes'],
    ['account', 'correct-email', id, 'new@example.com', '--yes'],
  ]) {
    const refused = await cli(...words);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain('released');
  }
  expect(await cli('audit')).toMatchObject({ code: 0 });
});

test('a mail to the old address that is in hand during the correction does not count for the new one', async () => {
  const application = newApplication();
  world.mail.setFault(busy);
  const id = await submit(world, ingest, application);
  await eventually(
    'a failed attempt',
    async () => (await world.record(id))?.lastError !== undefined,
  );
  const before = await accountOf(id);
  const address = `right-${application.email}`;
  expect(await cli('account', 'correct-email', id, address, '--yes')).toMatchObject({ code: 0 });
  // A worker that was frozen with the old address in hand wakes up and notes that its mail is out.
  const intent = { claim: 0, startedAt: new Date(), attempt: 1, host: 'frozen' };
  const late = new LedgerStore({ db: world.stores.db, clock });
  await late.beginHandOver(before!, intent, { tokenHash: 'old', expiresAt: new Date() });
  await late.endHandOver(before!, intent, { result: 'accepted', answer: '250 ok' });
  const account = await accountOf(id);
  expect(account?.notifiedAt).toBeUndefined();
  expect(account?.activation?.tokenHash).not.toBe('old');
  expect(account?.mail?.handOvers['0']).toMatchObject({ result: 'accepted', host: 'frozen' });

  await eventually(
    'a failed attempt at the new address',
    async () => (await world.record(id))?.lastError !== undefined,
  );
  world.mail.setFault(undefined);
  // The worker may have it in hand, which refuses the retry, or may mail it by itself first.
  await eventually('the mail to the new address', async () => {
    await cli('retry', id);
    return world.mail.mailsTo(address).length > 0;
  });
});

/** Records in any state, as if they had come a while ago; each of an applicant of its own. */
async function plant(count: number, change: Partial<SubmissionRecord>): Promise<string[]> {
  const { id } = await completed();
  const {
    expiresAt: _e,
    dueAt: _d,
    accountId: _a,
    bodyUntil: _b,
    ...like
  } = (await world.record(id))!;
  const records = Array.from({ length: count }, () => ({
    ...like,
    ...change,
    _id: newId('req'),
    applicant: {},
  }));
  const history = [{ state: change.state ?? like.state, at: new Date(), attempt: 1 }];
  await requests().insertMany(records.map((record) => ({ ...record, history })));
  return records.map(({ _id }) => _id);
}

test('close: an open request and a dead letter end for good, with a reason; what a worker holds is left alone', async () => {
  const later = new Date(Date.now() + 3_600_000);
  const [waiting] = await plant(1, { state: 'recorded', dueAt: later, version: 1 });
  const [held] = await plant(1, {
    state: 'recorded',
    dueAt: later,
    claimedUntil: later,
    version: 1,
  });
  expect(await cli('close', waiting!, '--yes')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--why'),
  });
  expect((await cli('close', waiting!)).stdout).toContain(
    'recorded → rejected; nothing was changed',
  );
  expect(await cli('close', waiting!, '--yes', '--why', 'ticket 4711')).toMatchObject({ code: 0 });
  const record = await world.record(waiting!);
  expect(record).toMatchObject({
    state: 'rejected',
    // What the status look-up shows of it.
    reasons: [{ code: 'discarded' }],
    version: 2,
    expiresAt: expect.any(Date),
    bodyUntil: expect.any(Date),
  });
  expect(record).not.toHaveProperty('dueAt');
  expect(record?.history.at(-1)?.reason).toBe('operator closed it: ticket 4711, by test-operator');
  expect(await cli('close', held!, '--yes', '--why', 'x')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('worked on'),
  });
  expect(await world.record(held!)).toMatchObject({ state: 'recorded', version: 1 });
  expect(await cli('close', waiting!)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('nothing to close'),
  });
  await requests().deleteOne({ _id: held! });

  world.mail.setFault(busy);
  const application = newApplication();
  const id = await submit(world, ingest, application);
  await eventually(
    'the first attempt to fail',
    async () => (await world.record(id))?.lastError !== undefined,
  );
  expect(await cli('close', id, '--yes', '--why', 'wrong business')).toMatchObject({ code: 0 });
  expect(await world.record(id)).toMatchObject({
    state: 'undeliverable',
    accountId: (await accountOf(id))?._id,
  });
  expect(await cli('audit')).toMatchObject({ code: 0 });
});

test('close and retry by query: dry run first, only what matches, page after page, and on where a limit stopped it', async () => {
  const dead = { state: 'dead_lettered', version: 3, partnerId: 'acme' } as const;
  const ids = (
    await plant(1_203, { ...dead, lastError: 'the mail server answered 451' })
  ).toSorted();
  const others = await plant(2, { ...dead, lastError: 'a bug' });
  const query = [
    'close',
    '--state',
    'dead_lettered',
    '--partner',
    'acme',
    '--reason',
    'answered 451',
    '--why',
    'old',
  ];
  const dry = await cli(...query);
  expect(dry.stdout).toMatch(/1203 would be closed; add --yes to do it/);
  expect(await requests().countDocuments({ state: 'dead_lettered', partnerId: 'acme' })).toBe(
    1_205,
  );
  const first = await cli(...query, '--yes', '--limit', '600', '--json');
  expect(first.json()).toMatchObject({ dry_run: false, looked_at: 600, closed: 600 });
  const rest = await cli(...query, '--yes', '--rate', '100000');
  expect(rest.stdout).toContain('603 closed');
  expect(await requests().countDocuments({ _id: { $in: ids }, state: 'rejected' })).toBe(1_203);
  const trail = await world.stores.db
    .collection<TrailEntry>(OPERATOR_AUDIT)
    .find({ action: 'close', why: 'old', result: 'done' })
    .toArray();
  expect(trail.reduce((sum, { count = 1 }) => sum + count, 0)).toBe(1_203);
  expect(await cli('close', '--state', 'completed')).toMatchObject({ code: 2 });

  await requests().updateMany({ _id: { $in: others } }, { $set: { lastError: 'a bug (fixed)' } });
  const retried = await cli(
    'retry',
    '--state',
    'dead_lettered',
    '--reason',
    'BUG (fixed',
    '--rate',
    '1',
    '--yes',
    '--json',
  );
  expect(retried.json()).toMatchObject({ looked_at: 2, retried: 2 });
  for (const id of others)
    await eventually(
      'worked on again',
      async () => (await world.record(id))?.state !== 'dead_lettered',
    );
  await requests().deleteMany({ _id: { $in: [...ids, ...others] } });
});

test('resend by query: a mail of its own for each that has a link', async () => {
  const since = new Date(Date.now() - 1).toISOString();
  const { id, application } = await completed();
  expect((await cli('resend', '--state', 'completed', '--since', since)).stdout).toContain(
    '1 would be resent',
  );
  expect((await cli('resend', '--state', 'completed', '--since', since, '--yes')).stdout).toContain(
    '1 resent',
  );
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  await world.recordIn('completed', id);
});

test('find by business name, in any case and in part', async () => {
  const { id, application } = await completed();
  const found = await cli(
    'find',
    '--name',
    application.business_name.toUpperCase().slice(2),
    '--json',
  );
  expect(found.json()).toMatchObject([{ request_id: id }]);
  expect(await cli('find', '--name', '.*')).toMatchObject({ code: 1 });
});
