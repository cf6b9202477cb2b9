/** Later bounces, and commands during a fault: they print what is true, and a repeat does the rest. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { Document } from 'mongodb';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { readBacklog } from '../../internal/submission/due-work.ts';
import { pastLockConflicts } from '../../internal/platform/stores/mongo.ts';
import {
  CLAIM_MS,
  type SubmissionRecord,
  SUBMISSIONS,
} from '../../internal/submission/submission.ts';
import { RATE_LIMITED } from '../../internal/submission/over-limit.ts';
import { operatorWorld, runCli, type Ran } from '../support/cli.ts';
import { startMongoWire, type MongoWire } from '../support/mongo-wire.ts';
import { submit } from '../support/processing.ts';
import { newRecord } from '../support/records.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { HANG_MS, eventually } from '../support/wait.ts';

const { world, ingest, cli, completed, failing, done, trailOf } = await operatorWorld();
let wire: MongoWire;

beforeAll(async () => {
  wire = await startMongoWire(world.stores.mongodbUri);
});
afterEach(async () => {
  world.mail.setFault(undefined);
  wire.answer(() => undefined);
  for (const name of [SUBMISSIONS, ACCOUNTS])
    await pastLockConflicts(() => world.stores.db.collection(name).deleteMany({}));
});
afterAll(async () => {
  await wire.close();
});

const { requests, accounts } = world.stores;

/** Records of the partner `acme` that no worker looks at for an hour, in the order of their ids. */
async function plant(...changes: readonly Partial<SubmissionRecord>[]): Promise<string[]> {
  const records = changes.map(({ state = 'account_created', ...change }) => {
    const { dueAt: _due, ...like } = newRecord({ partnerId: 'acme', version: 1, state, ...change });
    const due = state === 'account_created' ? { dueAt: new Date(Date.now() + 3_600_000) } : {};
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

test('a bounce reported before its request is completed is refused, to be reported again later', async () => {
  const { id, messageId } = await completed();
  const dueAt = new Date(Date.now() + CLAIM_MS);
  const waiting = { state: 'account_created', dueAt, claimedUntil: dueAt } as const;
  await requests.updateOne({ _id: id }, { $set: waiting, $unset: { expiresAt: true } });
  const early = await cli('bounce', '--message-id', messageId);
  expect(early).toMatchObject({ code: 75, stdout: '' });
  expect(early.stderr).toContain(`${id} is account_created`);
});

test('an order for many skips, counts and names claimed requests, and exits with 1', async () => {
  const until = new Date(Date.now() + CLAIM_MS);
  const free = Array.from({ length: 203 }, () => ({}));
  const held = await plant(...free, { claimedUntil: until }, { claimedUntil: until });
  const close = ['close', '--state', 'account_created', '--partner', 'acme', '--why', 'x'];
  expect((await cli(...close)).code).toBe(0);
  const some = await cli(...close, '--yes');
  expect(some).toMatchObject({ code: 1, stdout: expect.stringContaining('203 closed') });
  expect(some.stderr).toContain('2 not closed');
  for (const id of held.slice(-2)) expect(some.stdout).toContain(id);
  const none = await cli(...close, '--yes', '--json');
  expect(none).toMatchObject({ code: 1 });
  expect(none.json()).toMatchObject({ looked_at: 2, closed: 0, left: 2 });
  await requests.updateMany({ partnerId: 'acme' }, { $unset: { claimedUntil: true } });
  await done(...close, '--yes');
});

test('an order for many that loses the majority prints what is done and how to continue', async () => {
  const dead = Array.from({ length: 503 }, () => ({ state: 'dead_lettered' }) as const);
  const ids = await plant(...dead);
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
  const ids = await plant(
    ...Array.from({ length: 3 }, () => ({ state: 'dead_lettered' }) as const),
  );
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
  expect((await cli('find', '--email', address, '--json')).json()).toMatchObject([
    { request_id: id },
  ]);
});

test('show says that a request contradicts its account, until it does not', async () => {
  const { id } = await completed();
  const lost = await accounts.findOneAndDelete({ requestId: id });
  expect((await cli('show', id)).stdout).toContain(
    'something is wrong: it should have an account, but there is none',
  );
  await accounts.insertOne(lost!);
  expect((await cli('show', id)).stdout).not.toContain('something is wrong');
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

test.each([['id'], ['address']])(
  'erase by %s continues when a worker claims the request in between',
  async (by) => {
    const { id, application } = await failing();
    const words = by === 'id' ? [id] : ['--email', application.email];
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
      ...words,
      '--yes',
    );
    expect(writes()).toHaveLength(2);
    expect(erased).toMatchObject({ code: 0 });
    expect(await world.record(id)).toMatchObject({ erasedAt: expect.any(Date) });
  },
);

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

test('a report makes a completed request undeliverable, and a retry mails again', async () => {
  const { id, application, messageId } = await completed();
  const report = ['bounce', '--message-id', messageId, '--status', '5.1.1', '--as', 'bounces'];
  const { bounced } = await readBacklog(world.stores.db, new Date());
  await done(...report);
  const record = await world.recordIn('undeliverable', id);
  const reason =
    'the e-mail bounced after the mail server had taken it (5.1.1), reported by bounces';
  expect(record).toMatchObject({
    lastError: reason,
    reasons: [{ field: 'email', code: 'unknown_mailbox' }],
    bouncedAt: expect.any(Date),
    expiresAt: expect.any(Date),
  });
  expect(record.history.at(-1)).toMatchObject({ state: 'undeliverable', reason });
  expect(await trailOf(id)).toMatchObject([{ action: 'bounce', by: 'bounces', result: 'done' }]);
  expect((await readBacklog(world.stores.db, new Date())).bounced).toBe(bounced + 1);
  expect((await cli('audit')).stdout).not.toContain(id);

  const again = await cli(...report);
  expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing to do') });
  expect((await world.record(id))?.history).toHaveLength(record.history.length);

  await done('retry', id);
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  expect(await world.recordIn('completed', id)).not.toHaveProperty('reasons');
  // This late report is about the first of two mails.
  expect((await cli(...report)).stdout).toContain('an earlier e-mail');
  expect((await world.record(id))?.state).toBe('completed');
});

test.each(['--request', '--email'])('%s says which e-mail came back', async (option) => {
  const { id, application } = await completed();
  const value = option === '--request' ? id : application.email.toUpperCase();
  await done('bounce', option, value);
  await world.recordIn('undeliverable', id);
});

test('a report about an unknown mail is refused', async () => {
  const unknown = [
    ['--message-id', '<other@x.example>'],
    ['--message-id', `<${newId('acc', new Date())}.login-instructions@x.example>`],
    ['--request', newId('req', new Date())],
    ['--email', 'nobody@example.com'],
  ];
  for (const words of unknown)
    expect(await cli('bounce', ...words)).toMatchObject({ code: 1, stdout: '' });
  for (const words of [[], ['--status', '5.1.1'], ['--request', 'a', '--email', 'b@x.example']])
    expect(await cli('bounce', ...words)).toMatchObject({ code: 2, stdout: '' });
});
