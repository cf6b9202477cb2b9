/**
 * Changes by operators: retry, resend, correct-email, release and close, with the real command and
 * processor.
 */
import { afterEach, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { utc } from '../../internal/view/words.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { pastLockConflicts } from '../../internal/platform/stores/mongo.ts';
import { OPERATOR_AUDIT, type TrailEntry } from '../../internal/trail/trail.ts';
import { ledgerWith } from '../../internal/account/mail-ledger.ts';
import {
  CLAIM_MS,
  type SubmissionRecord,
  SUBMISSIONS,
} from '../../internal/submission/submission.ts';
import { operatorWorld, spawnCli } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { recordOf } from '../support/records.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { leapingClock } from '../support/leaping-clock.ts';
import { newApplication } from '../support/world.ts';
import { BACKED_OFF_AT_MOST_MS, MAX_AMBIGUOUS } from '../../internal/processor/step.ts';

const { world, ingest, cli, completed, failing, done, refused, accountOf, trailOf } =
  await operatorWorld();

// Deletes all records, so that a query of one test finds nothing of another.
afterEach(async () => {
  world.mail.setFault(undefined);
  for (const name of [SUBMISSIONS, ACCOUNTS])
    await pastLockConflicts(() => world.stores.db.collection(name).deleteMany({}));
});

const { requests, accounts } = world.stores;
const unknownUser = { at: 'rcpt', answer: { code: 550, message: '5.1.1 unknown user' } } as const;

const mailTo = (address: string) =>
  world.mail.waitForMail((caught) => caught.to.includes(address), HANG_MS);

function tokenHashOf(mail: { readonly links: readonly string[] } | undefined): string {
  const link = new URL(mail?.links.find((url) => url.includes('token=')) ?? '');
  return createHash('sha256')
    .update(link.searchParams.get('token') ?? '')
    .digest('hex');
}

test('retry brings a waiting request and then a dead letter at once, and history and trail show each', async () => {
  const { id, application } = await failing();
  // The next attempt is its last, and the command makes it instead of the time.
  await requests.updateOne({ _id: id }, { $set: { backedOffMs: BACKED_OFF_AT_MOST_MS } });
  await done('retry', id);
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
  await refused(/is completed .*nothing to retry\n$/, 'retry', id);
});

test('retry and close are refused while a worker holds the claim, also with a wrong local clock', async () => {
  const { id } = await failing();
  const claimedUntil = new Date(Date.now() + CLAIM_MS);
  await requests.updateOne({ _id: id }, { $set: { claimedUntil, dueAt: claimedUntil } });
  const before = await world.record(id);
  const until = utc(claimedUntil);
  const close = ['close', id, '--yes', '--why', 'x'];
  await refused(`is being worked on: it is free at ${until} UTC`, 'retry', id);
  await refused('worked on', ...close);
  expect((await cli('show', id)).stdout).toContain(
    `a processor is working on it, until ${until} UTC or longer`,
  );
  for (const words of [['retry', id], close]) {
    const environment = { ...world.environment, ...leapingClock(3_600) };
    const ahead = await spawnCli(environment, ...words);
    expect(ahead.code).toBe(1);
    expect(ahead.stderr).toContain('worked on');
  }
  expect(await world.record(id)).toEqual(before);
  expect(await trailOf(id)).toEqual([]);
});

test('retry by query lists without --yes, and with it retries what it can', async () => {
  world.mail.setFault(unknownUser);
  const ids: string[] = [];
  for (let index = 0; index < 3; index += 1)
    ids.push(await submit(world, ingest, newApplication()));
  for (const id of ids) await world.recordIn('undeliverable', id);
  world.mail.setFault(undefined);
  await done('erase', ids[0]!, '--yes');
  // A request whose mail may have gone out three times is still sent again.
  await requests.updateOne({ _id: ids[1]! }, { $set: { ambiguous: MAX_AMBIGUOUS } });

  const dry = await done('retry', '--state', 'undeliverable');
  expect(dry.stdout).toContain('2 would be retried; add --yes');
  expect(dry.stdout).toContain('was erased');
  expect(await requests.countDocuments({ _id: { $in: ids }, state: 'undeliverable' })).toBe(3);

  expect((await done('retry', '--state', 'undeliverable', '--yes')).stdout).toContain('2 retried');
  for (const id of ids.slice(1)) await world.recordIn('completed', id);
  expect(await cli('retry', '--state', 'dead_lettered', '--since', '1s')).toMatchObject({
    code: 1,
  });
});

test('resend mails the same link again, only with --yes, also by query', async () => {
  const since = new Date(Date.now() - 1).toISOString();
  const { id, application } = await completed();
  const dry = await done('resend', id);
  expect(dry.stdout).toContain('nothing was changed; add --yes');
  expect(dry.stdout).not.toContain(application.email);
  expect((await world.record(id))?.state).toBe('completed');
  expect(await trailOf(id)).toEqual([]);

  const mails = () => world.mail.mailsTo(application.email);
  await done('resend', id, '--yes');
  await eventually('the second mail', () => mails().length === 2);
  await world.recordIn('completed', id);
  const [first, second] = mails();
  expect(tokenHashOf(second)).toBe(tokenHashOf(first));
  expect(tokenHashOf(second)).toBe((await accountOf(id)).activation?.tokenHash);
  expect(second?.messageId).not.toBe(first?.messageId);
  expect((await cli('show', id)).stdout).toContain(
    'waits to be mailed again: operator resend by test-operator',
  );

  const query = ['resend', '--state', 'completed', '--since', since];
  expect((await done(...query)).stdout).toContain('1 would be resent');
  expect((await done(...query, '--yes')).stdout).toContain('1 resent');
  await eventually('the third mail', () => mails().length === 3);
  await world.recordIn('completed', id);
});

test('a resend of many that was cut off and is given again mails nobody twice', async () => {
  const since = new Date(Date.now() - 1).toISOString();
  const three = [await completed(), await completed(), await completed()];
  const mails = () => three.map(({ application }) => world.mail.mailsTo(application.email).length);
  const order = (why: string, ...more: string[]) =>
    cli('resend', '--state', 'completed', '--since', since, '--yes', '--why', why, ...more);
  expect(await order('leak 1', '--limit', '2')).toMatchObject({ code: 0 });
  await eventually('two mails', () => mails().filter((count) => count === 2).length === 2);
  for (const { id } of three) await world.recordIn('completed', id);
  const again = await order('leak 1');
  expect(again.stdout).toContain('1 resent');
  expect(again.stdout).toMatch(/was resent .* by this order: another --why makes another order/);
  await eventually('one mail for each', () => mails().every((count) => count === 2));
  for (const { id } of three) await world.recordIn('completed', id);
  expect((await order('leak 1')).stdout).toContain('0 resent');
  expect((await order('leak 2')).stdout).toContain('3 resent');
  await eventually('another mail for each', () => mails().every((count) => count === 3));
});

test('an e-mail that was begun with its account and never handed over counts as none', async () => {
  const application = newApplication();
  const { email, business_name: businessName, ein } = application;
  const record = { ...recordOf(application, new Date(), {}), version: 1 };
  // A worker died between the insert of the account and the move of its record.
  const intent = { claim: 2, startedAt: new Date(), attempt: 1, host: 'processor-1' };
  const owner = { requestId: record._id, partnerId: 'demo' };
  const store = new AccountStore({ db: world.stores.db, clock });
  await store.create({
    ...store.draft({ email, businessName, ein }, owner),
    activation: { tokenHash: 'a'.repeat(64), expiresAt: new Date(Date.now() + 86_400_000) },
    mail: ledgerWith(intent),
  });
  await world.stores.requests.insertOne({ ...record, dueAt: new Date() });
  await world.recordIn('completed', record._id);
  expect((await accountOf(record._id)).mail).toMatchObject({ possible: 1 });
  expect((await done('audit', '--json')).json()).not.toMatchObject({
    findings: expect.arrayContaining([
      expect.objectContaining({
        kind: 'mailed_twice',
        ids: expect.arrayContaining([(await accountOf(record._id))._id]),
      }),
    ]),
  });
});

test('correct-email mails a new link to the new address and voids the old one', async () => {
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  const words = ['account', 'correct-email', id, address];
  const dry = await done(...words);
  expect(dry.stdout).toContain('nothing was changed; add --yes');
  // The operator sees what they gave; the old address, programs and the trail's copy stay masked.
  expect(dry.stdout).toContain(`a***@e***.com → ${address} and a new link`);
  expect((await cli(...words, '--json')).stdout).not.toContain(address);
  expect((await accountOf(id)).email).toBe(application.email);
  expect(await trailOf(id)).toEqual([]);

  const corrected = await done(...words, '--yes');
  expect(corrected.stdout).toContain(`a***@e***.com → ${address}; the old link is void`);
  expect(corrected.stdout).toContain('it is due now');
  expect(corrected.stderr).not.toContain(address);
  expect(JSON.stringify(await trailOf(id))).not.toContain(address);
  const mail = await mailTo(address);
  await world.recordIn('completed', id);
  const account = await accountOf(id);
  expect(account).toMatchObject({ email: address, emailNormalized: address, ein: application.ein });
  expect(account.activation?.tokenHash).toBe(tokenHashOf(mail));
  const [old, ...others] = world.mail.mailsTo(application.email);
  expect(tokenHashOf(mail)).not.toBe(tokenHashOf(old));
  expect(others).toEqual([]);
  expect((await cli('find', '--email', address, '--json')).json()).toMatchObject([
    { request_id: id },
  ]);
});

test('correct-email mails an undeliverable request, but refuses the address of another account', async () => {
  const other = await completed();
  const application = newApplication();
  world.mail.setFault(unknownUser);
  const id = await submit(world, ingest, application);
  await world.recordIn('undeliverable', id);
  world.mail.setFault(undefined);
  const [taken, address] = [other.application.email.toUpperCase(), `right-${application.email}`];
  const command = ['account', 'correct-email', id];
  await refused(`belongs to another account (${other.id})`, ...command, taken, '--yes');
  await done(...command, address, '--yes');
  await world.recordIn('completed', id);
  expect(world.mail.mailsTo(address)).toHaveLength(1);
  expect(world.mail.mailsTo(application.email)).toHaveLength(0);
});

test('correct-email run again finishes an interrupted correction', async () => {
  const corrections = new AccountCorrections({ db: world.stores.db, clock });
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  const words = ['account', 'correct-email', id, address];
  // The command ends after its first write: no mail goes to the new address, and the request is
  // still found by the old one.
  await corrections.correctEmail(await accountOf(id), address);
  expect((await done(...words)).stdout).toContain(
    'was cut off: it is finished and a new link is mailed',
  );
  await done(...words, '--yes');
  const mail = await mailTo(address);
  await world.recordIn('completed', id);
  expect(await accountOf(id)).toMatchObject({
    activation: { tokenHash: tokenHashOf(mail) },
    linkVersion: 1,
    mailVersion: 1,
  });
  expect((await cli('find', '--email', address, '--json')).json()).toMatchObject([
    { request_id: id },
  ]);
  await refused('has this address already', ...words, '--yes');
});

test('release keeps the account, and frees its EIN and address for a new application', async () => {
  const { id, application } = await completed();
  await world.recordIn('rejected', await submit(world, ingest, application));
  expect((await cli('account', 'release', id)).stdout).toContain('add --yes');
  expect((await accountOf(id)).ein).toBe(application.ein);

  await done('account', 'release', id, '--yes', '--why', 'EIN of another business');
  const account = await accountOf(id);
  expect(account).toMatchObject({
    releasedAt: expect.any(Date),
    released: {
      email: application.email,
      ein: application.ein,
      businessName: application.business_name,
    },
  });
  expect(account.activation).toBeUndefined();
  const third = await submit(world, ingest, application);
  await world.recordIn('completed', third);
  expect(world.mail.mailsTo(application.email)).toHaveLength(2);
  expect((await cli('show', id)).stdout).toContain(
    'operator test-operator: account release (EIN of another business)',
  );
  await refused('released', 'account', 'release', id, '--yes');
  await refused('released', 'resend', id, '--yes');
  await refused('released', 'account', 'correct-email', id, 'new@example.com', '--yes');
  await done('audit');

  // The use of a link stays noted, although an unused link ends.
  const usedAt = new Date(Date.now() - 1_000);
  await accounts.updateOne({ requestId: third }, { $set: { 'activation.usedAt': usedAt } });
  const { activation } = await accountOf(third);
  await done('account', 'release', third, '--yes');
  expect(await accountOf(third)).toMatchObject({ releasedAt: expect.any(Date), activation });
  expect(activation).toMatchObject({ usedAt });
});

/** Records of no known applicant, in any state. */
async function plant(count: number, change: Partial<SubmissionRecord>): Promise<string[]> {
  const records = Array.from({ length: count }, () => {
    const { dueAt: _due, ...like } = recordOf({}, new Date());
    const history = [{ state: change.state ?? like.state, at: new Date(), attempt: 1 }];
    return { ...like, history, applicant: {}, ...change };
  });
  await requests.insertMany(records);
  return records.map(({ _id }) => _id);
}

test('close ends an open request with a reason, with an account or without', async () => {
  const dueAt = new Date(Date.now() + 3_600_000);
  const [waiting] = (await plant(1, { state: 'recorded', dueAt, version: 1 })) as [string];
  expect(await cli('close', waiting, '--yes')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--why'),
  });
  expect((await cli('close', waiting)).stdout).toContain('recorded → closed; nothing was changed');
  await done('close', waiting, '--yes', '--why', 'ticket 4711');
  const record = await world.record(waiting);
  expect(record).toMatchObject({
    state: 'closed',
    reasons: [{ code: 'discarded' }],
    version: 2,
    expiresAt: expect.any(Date),
    bodyUntil: expect.any(Date),
  });
  expect(record).not.toHaveProperty('dueAt');
  expect(record?.history.at(-1)?.reason).toBe('operator closed it: ticket 4711, by test-operator');
  await refused('nothing to close', 'close', waiting);

  const { id } = await failing();
  await done('close', id, '--yes', '--why', 'wrong business');
  const { _id: accountId } = await accountOf(id);
  expect(await world.record(id)).toMatchObject({ state: 'closed', accountId });
  // A close that was cut off between record and account is told, and finished.
  await accounts.updateOne({ _id: accountId }, { $unset: { closedAt: true } });
  expect(await cli('audit')).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('close it again'),
  });
  await done('close', id, '--yes', '--why', 'wrong business');
  await done('audit');
});

test('close and retry by query change only matches, and continue after a limit', async () => {
  const dead = { state: 'dead_lettered', version: 3, partnerId: 'acme' } as const;
  const ids = await plant(1_203, { ...dead, lastError: 'the mail server answered 451' });
  const others = await plant(2, { ...dead, lastError: 'a bug' });
  const deadLettered = ['--state', 'dead_lettered'];
  const matching = ['--partner', 'acme', '--reason', 'answered 451', '--why', 'old'];
  const query = ['close', ...deadLettered, ...matching];
  expect((await cli(...query)).stdout).toMatch(/1203 would be closed; add --yes to do it/);
  expect(await requests.countDocuments({ state: 'dead_lettered', partnerId: 'acme' })).toBe(1_205);
  const first = await cli(...query, '--yes', '--limit', '600', '--rate', '100000', '--json');
  expect(first.json()).toMatchObject({ dry_run: false, looked_at: 600, closed: 600 });
  const rest = await cli(...query, '--yes', '--rate', '100000');
  expect(rest.stdout).toContain('603 closed');
  expect(await requests.countDocuments({ _id: { $in: ids }, state: 'closed' })).toBe(1_203);
  const trail = await world.stores.db
    .collection<TrailEntry>(OPERATOR_AUDIT)
    .find({ action: 'close', why: 'old', result: 'done' })
    .toArray();
  expect(trail.reduce((sum, { count = 1 }) => sum + count, 0)).toBe(1_203);
  expect(await cli('close', '--state', 'completed')).toMatchObject({ code: 2 });

  await requests.updateMany({ _id: { $in: others } }, { $set: { lastError: 'a bug (fixed)' } });
  const reason = ['--reason', 'BUG (fixed', '--rate', '1'];
  const retried = await cli('retry', ...deadLettered, ...reason, '--yes', '--json');
  expect(retried.json()).toMatchObject({ looked_at: 2, retried: 2 });
  for (const id of others)
    await eventually(
      'worked on again',
      async () => (await world.record(id))?.state !== 'dead_lettered',
    );
});
