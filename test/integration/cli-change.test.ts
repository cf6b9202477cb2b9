/**
 * Changes by operators, with the real command and processor. During a fault they print what is true,
 * and a repeat does the rest.
 */
import { afterAll, afterEach, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import type { Document } from 'mongodb';
import { AccountStore } from '../../internal/account/account-store.ts';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { ledgerWith } from '../../internal/account/mail-ledger.ts';
import { later, systemClock as clock } from '../../internal/platform/process/clock.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { pastLockConflicts } from '../../internal/platform/stores/mongo.ts';
import { BACKED_OFF_AT_MOST_MS, MAX_AMBIGUOUS } from '../../internal/processor/verdict.ts';
import { RATE_LIMITED } from '../../internal/submission/over-limit.ts';
import {
  CLAIM_MS,
  type SubmissionRecord,
  SUBMISSIONS,
} from '../../internal/submission/submission.ts';
import { utc } from '../../internal/operators/view/words.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { operatorWorld, runCli, spawnCli, type Ran } from '../support/cli.ts';
import { leapingClock } from '../support/leaping-clock.ts';
import { startMongoWire, type MongoWire } from '../support/mongo-wire.ts';
import { submit } from '../support/processing.ts';
import { newRecord, recordOf } from '../support/records.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { newApplication } from '../support/world.ts';

const { world, ingest, cli, completed, failing, done, refused, accountOf, trailOf } =
  await operatorWorld();
const wire = await startMongoWire(world.stores.mongodbUri);

// Deletes all records, so that a query of one test finds nothing of another.
afterEach(async () => {
  world.mail.setFault(undefined);
  wire.answer(() => undefined);
  for (const name of [SUBMISSIONS, ACCOUNTS])
    await pastLockConflicts(() => world.stores.db.collection(name).deleteMany({}));
});
afterAll(() => wire.close());

const { requests, accounts } = world.stores;

function tokenHashOf(mail: { readonly links: readonly string[] } | undefined): string {
  const link = new URL(mail?.links.find((url) => url.includes('token=')) ?? '');
  return createHash('sha256')
    .update(link.searchParams.get('token') ?? '')
    .digest('hex');
}

/** Records of the partner `acme` that no worker looks at for an hour, in the order of their ids. */
async function plant(
  count: number,
  { state = 'account_created', ...change }: Partial<SubmissionRecord> = {},
): Promise<string[]> {
  const records = Array.from({ length: count }, () => {
    const { dueAt: _due, ...like } = newRecord({ partnerId: 'acme', version: 1, state, ...change });
    const due = state === 'account_created' ? { dueAt: later(new Date(), 3_600_000) } : {};
    return { ...like, ...due, history: [{ state, at: new Date(), attempt: 1 }] };
  });
  await requests.insertMany(records);
  return records.map(({ _id }) => _id);
}

/** Runs the command over a connection whose answers are changed by `change`. */
function overWire(change: Parameters<MongoWire['answer']>[0], ...words: string[]): Promise<Ran> {
  wire.answer(change);
  return runCli({ ...world.environment, MONGODB_URI: wire.url }, ...words);
}

const noMajority = { code: 64, codeName: 'WriteConcernTimeout', errmsg: 'no majority in time' };

/** A MongoDB that reaches its majority only for the first write of requests. */
function majorityForOneWrite(): Parameters<MongoWire['answer']>[0] {
  let writes = 0;
  return ({ update }, reply) => {
    if (update !== SUBMISSIONS) return undefined;
    writes += 1;
    return writes === 1 ? undefined : { ...reply, writeConcernError: noMajority };
  };
}

test('retry brings a waiting request and then a dead letter at once, and history and trail show each', async () => {
  const { id, application } = await failing();
  // The next attempt is its last, and the command makes it instead of the time.
  await requests.updateOne({ _id: id }, { $set: { backedOffMs: BACKED_OFF_AT_MOST_MS } });
  await done('retry', id);
  await world.recordIn('dead_lettered', id);
  // It is sent again although its e-mail may have gone out three times.
  await requests.updateOne({ _id: id }, { $set: { ambiguous: MAX_AMBIGUOUS } });
  expect((await cli('show', id)).stdout).toMatch(/given up: the mail server did not accept/);

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
  await refused(/is completed: nothing to retry\n$/, 'retry', id);
});

test('retry and close are refused while a worker holds the claim, also with a wrong local clock', async () => {
  const { id } = await failing();
  const claimedUntil = new Date(Date.now() + CLAIM_MS);
  await requests.updateOne({ _id: id }, { $set: { claimedUntil, dueAt: claimedUntil } });
  const before = await world.record(id);
  const until = utc(claimedUntil);
  await refused(`is being worked on: it is free at ${until} UTC`, 'retry', id);
  expect((await cli('show', id)).stdout).toContain(
    `a processor is working on it, until ${until} UTC or longer`,
  );
  const environment = { ...world.environment, ...leapingClock(3_600) };
  const ahead = await spawnCli(environment, 'close', id, '--yes', '--why', 'x');
  expect(ahead).toMatchObject({ code: 1, stderr: expect.stringContaining('worked on') });
  expect(await world.record(id)).toEqual(before);
  expect(await trailOf(id)).toEqual([]);
});

test('resend mails the same link again, only with --yes', async () => {
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
  // The order is known by its code whatever its words, and by the words of a version without codes.
  const [reworded, older] = three;
  const words = { 'history.$[].reason': 'other words' };
  await requests.updateOne({ _id: reworded!.id }, { $set: words });
  const codes = { 'history.$[].code': true, 'history.$[].of': true } as const;
  await requests.updateOne({ _id: older!.id }, { $unset: codes });
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

test('correct-email mails a new link to a new address that is free, and voids the old one', async () => {
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  const words = ['account', 'correct-email', id, address];
  const other = await completed();
  const taken = other.application.email.toUpperCase();
  await refused(`another account (${other.id})`, ...words.slice(0, 3), taken, '--yes');
  const dry = await done(...words);
  expect(dry.stdout).toContain('nothing was changed; add --yes');
  // The operator sees what they gave; the old address, programs and the trail's copy stay masked.
  expect(dry.stdout).toContain(`a***@e***.com, becomes ${address}, and a new link`);
  expect((await cli(...words, '--json')).stdout).not.toContain(address);
  expect((await accountOf(id)).email).toBe(application.email);
  expect(await trailOf(id)).toEqual([]);

  const corrected = await done(...words, '--yes');
  expect(corrected.stdout).toContain(`a***@e***.com → ${address}; the old link is void`);
  expect(corrected.stdout).toContain('it is due now');
  expect(corrected.stderr).not.toContain(address);
  expect(JSON.stringify(await trailOf(id))).not.toContain(address);
  await world.recordIn('completed', id);
  const [mail] = world.mail.mailsTo(address);
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

test('close ends an open request with a reason, and finishes what was cut off', async () => {
  const { id } = await failing();
  expect(await cli('close', id, '--yes')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--why'),
  });
  await done('close', id, '--yes', '--why', 'wrong business');
  expect((await world.record(id))?.history.at(-1)?.reason).toBe(
    'operator closed it: wrong business, by test-operator',
  );
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
  const dead = { state: 'dead_lettered' } as const;
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
  const trail = await world.trail({ action: 'close', why: 'old', result: 'done' });
  expect(trail.reduce((sum, { count = 1 }) => sum + count, 0)).toBe(1_203);
  expect(await cli('close', '--state', 'completed')).toMatchObject({ code: 2 });

  await requests.updateMany({ _id: { $in: others } }, { $set: { lastError: 'a bug (fixed)' } });
  const reason = ['--reason', 'BUG (fixed', '--rate', '1'];
  const retried = await cli('retry', ...deadLettered, ...reason, '--yes', '--json');
  expect(retried.json()).toMatchObject({ looked_at: 2, retried: 2 });
  for (const id of others) await world.recordIn('rejected', id);
});

test('an order for many skips, counts and names claimed requests, and exits with 1', async () => {
  const until = new Date(Date.now() + CLAIM_MS);
  await plant(203);
  const held = await plant(2, { claimedUntil: until });
  const close = ['close', '--state', 'account_created', '--partner', 'acme', '--why', 'x'];
  const some = await cli(...close, '--yes');
  expect(some).toMatchObject({ code: 1, stdout: expect.stringContaining('203 closed') });
  expect(some.stderr).toContain('2 not closed');
  for (const id of held) expect(some.stdout).toContain(id);
  const none = await cli(...close, '--yes', '--json');
  expect(none).toMatchObject({ code: 1 });
  expect(none.json()).toMatchObject({ looked_at: 2, closed: 0, left: 2 });
  await requests.updateMany({ partnerId: 'acme' }, { $unset: { claimedUntil: true } });
  await done(...close, '--yes');
});

test('an order for many that loses the majority prints what is done and how to continue', async () => {
  const ids = await plant(503, { state: 'dead_lettered' });
  const close = ['close', '--state', 'dead_lettered', '--partner', 'acme', '--yes', '--why', 'x'];
  const fast = [...close, '--rate', '100000'];
  const cutOff = await overWire(majorityForOneWrite(), ...fast);
  expect(cutOff).toMatchObject({ code: 3, stdout: expect.stringContaining('500 closed') });
  expect(cutOff.stderr).toContain('stopped: what was done stays done');
  expect(cutOff.stderr).toContain('MongoDB');
  const since = /--since "([^"]+)"/.exec(cutOff.stderr)?.[1] ?? '';
  // The answer was lost, not the write.
  const left = { _id: { $in: ids.slice(500) } };
  expect(await requests.countDocuments({ ...left, state: 'closed' })).toBe(3);
  await requests.updateMany(left, { $set: { state: 'dead_lettered' } });
  expect(await cli(...fast, '--since', since)).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('3 closed'),
  });
});

test.each([
  ['goes on although the reader of its notes has gone', '2>&1 >/dev/null | true', 0, ''],
  ['says that its output cannot be written', '>/dev/full', 1, 'cannot be written (ENOSPC)'],
])('an order for many %s', async (_what, redirection, exit, note) => {
  const ids = await plant(3, { state: 'dead_lettered' });
  const words = 'close --state dead_lettered --partner acme --yes --why x';
  const script = `node cmd/cli/main.ts ${words} ${redirection}; exit "\${PIPESTATUS[0]}"`;
  const env = { ...world.environment, PATH: process.env['PATH'] };
  const ended = await endOf('bash', ['-c', script], { cwd: ROOT, env, timeoutMs: HANG_MS });
  expect(ended).toMatchObject({ code: exit, err: expect.stringContaining(note) });
  expect(await requests.countDocuments({ _id: { $in: ids }, state: 'closed' })).toBe(ids.length);
});

test('correct-email mails a dead letter whose worker died after creating the account', async () => {
  const { id, application } = await completed();
  const history = [{ state: 'dead_lettered', at: new Date(), attempt: 5 }] as const;
  await requests.updateOne(
    { _id: id },
    {
      $set: { state: 'dead_lettered', history },
      $unset: { accountId: true, applicant: true, expiresAt: true },
    },
  );
  const accountId = (await accounts.findOne({ requestId: id }))?._id;
  const address = `right-${application.email}`;
  const words = ['account', 'correct-email', id, address, '--yes'];
  await done(...words);
  expect(await world.recordIn('completed', id)).toMatchObject({ accountId });
  expect(world.mail.mailsTo(address)).toHaveLength(1);
});

test('an account without a request is a problem only where no retention explains it', async () => {
  const { id } = await completed();
  await requests.deleteOne({ _id: id });
  const lost = await cli('audit');
  expect(lost).toMatchObject({ code: 1 });
  expect(lost.stdout).toContain('1 account_without_request');
  // When its request expired, the retention may have been one day.
  const createdAt = new Date(Date.now() - 2 * 86_400_000);
  await accounts.updateOne({ requestId: id }, { $set: { createdAt } });
  const old = await cli('audit');
  expect(old).toMatchObject({ code: 0 });
  expect(old.stdout).toContain('1 request_expired_or_lost');
});

test('an unknown id is reported although the search in the counts of a flood takes too long', async () => {
  const unknown = newId('req', new Date());
  const tooLong = { ok: 0, code: 50, codeName: 'MaxTimeMSExpired', errmsg: 'exceeded time limit' };
  const shown = await overWire(
    ({ find }) => (find === RATE_LIMITED ? tooLong : undefined),
    'show',
    unknown,
  );
  expect(shown).toMatchObject({ code: 1, stdout: '' });
  expect(shown.stderr).toContain(`there is no request ${unknown}`);
  expect(shown.stderr).toContain('could not be searched');
});

test('erase continues when a worker claims the request in between', async () => {
  const { id, application } = await failing();
  const from = wire.commands.length;
  const writes = () => wire.commands.slice(from).filter(({ update }) => update === SUBMISSIONS);
  const erased = await overWire(
    ({ find }, reply) => {
      const cursor = reply['cursor'] as { firstBatch: Document[] } | undefined;
      const record = cursor?.firstBatch.find(({ _id }) => _id === id);
      if (find !== SUBMISSIONS || record === undefined || writes().length > 0) return undefined;
      // The command reads the version from before the claim.
      record['version'] = Number(record['version']) - 1;
      return reply;
    },
    'erase',
    '--email',
    application.email,
    '--yes',
  );
  expect(writes()).toHaveLength(2);
  expect(erased).toMatchObject({ code: 0 });
  expect(await world.record(id)).toMatchObject({ erasedAt: expect.any(Date) });
});

test('an erase that loses the majority prints what is done', async () => {
  const { id, application } = await completed();
  const second = await submit(world, ingest, application);
  await world.recordIn('rejected', second);
  const words = ['erase', '--email', application.email, '--yes'];
  const cutOff = await overWire(majorityForOneWrite(), ...words);
  expect(cutOff).toMatchObject({ code: 3, stdout: expect.stringContaining('1 done') });
  expect(cutOff.stdout).toContain(id);
  expect(cutOff.stderr).toContain('give the same command again');
  await cli(...words);
  for (const one of [id, second])
    expect(await world.record(one)).toMatchObject({ erasedAt: expect.any(Date) });
  expect(await world.accounts({ requestId: id, erasedAt: { $exists: false } })).toEqual([]);
});

// bounces.test.ts has what each report does.
test('a bounce is reported by command: too early, once, once more, late, and of an unknown mail', async () => {
  const { id, application, messageId } = await completed();
  const report = ['bounce', '--message-id', messageId, '--status', '5.1.1', '--as', 'bounces'];
  const dueAt = new Date(Date.now() + CLAIM_MS);
  const waiting = { state: 'account_created', dueAt, claimedUntil: dueAt } as const;
  await requests.updateOne({ _id: id }, { $set: waiting });
  const early = await cli(...report);
  expect(early).toMatchObject({ code: 75, stdout: '' });
  expect(early.stderr).toContain(`${id} is account_created`);
  const ended = {
    $set: { state: 'completed' },
    $unset: { dueAt: true, claimedUntil: true },
  } as const;
  await requests.updateOne({ _id: id }, ended);

  await done(...report);
  const record = await world.recordIn('undeliverable', id);
  const reason =
    'the e-mail bounced after the mail server had taken it, reported by bounces (5.1.1)';
  expect(record).toMatchObject({
    lastError: reason,
    reasons: [{ field: 'email', code: 'unknown_mailbox' }],
    bouncedAt: expect.any(Date),
    expiresAt: expect.any(Date),
  });
  expect(await trailOf(id)).toMatchObject([{ action: 'bounce', by: 'bounces', result: 'done' }]);
  expect((await cli('audit')).stdout).not.toContain(id);
  expect((await done(...report)).stdout).toContain('nothing to do');
  expect((await world.record(id))?.history).toHaveLength(record.history.length);

  await done('retry', id);
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  expect(await world.recordIn('completed', id)).not.toHaveProperty('reasons');
  // This late report is about the first of two mails.
  expect((await cli(...report)).stdout).toContain('an earlier e-mail');
  expect((await world.record(id))?.state).toBe('completed');
  const policy = await done(
    'bounce',
    '--email',
    application.email.toUpperCase(),
    '--status',
    '5.7.1',
  );
  expect(policy.stdout).toContain('says nothing of the applicant');
  const dead = await world.recordIn('dead_lettered', id);
  expect(dead).not.toHaveProperty('reasons');
  expect(dead).not.toHaveProperty('expiresAt');
  expect((await cli('audit')).stdout).not.toContain(`account_ ${id}`);

  for (const words of [
    ['--message-id', '<other@x.example>'],
    ['--message-id', `<${newId('acc', new Date())}.login-instructions@x.example>`],
    ['--request', newId('req', new Date())],
    ['--email', 'nobody@example.com'],
  ])
    expect(await cli('bounce', ...words)).toMatchObject({ code: 1, stdout: '' });
  for (const words of [[], ['--status', '5.1.1'], ['--request', 'a', '--email', 'b@x.example']])
    expect(await cli('bounce', ...words)).toMatchObject({ code: 2, stdout: '' });
});
