/** Tests by test keys, from outside: every ending on demand, and nothing live changes by them. */
import type { Document } from 'mongodb';
import { expect, test } from '@jest/globals';
import { TEST_ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { LIST_PATH } from '../../internal/ingest/contract.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { DAY_MS, later } from '../../internal/platform/process/clock.ts';
import { readBacklog, readPartnerBacklog } from '../../internal/submission/due-work.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';
import { cliOf } from '../support/cli.ts';
import { INGEST_PATH, lookedUp, send, type Answer } from '../support/http.ts';
import { hurryReconcile } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf } from '../support/world.ts';

const [testKey, otherTestKey] = [newApiKey({ test: true }), newApiKey({ test: true })];
const asTest = { annotations: { [MODE_ANNOTATION]: 'test' } };
const { world, ingest, ...first } = await worldOf(['ingest', 'processor'], {
  documentedRights: true,
  partners: [
    { partner: 'demo', name: 'tests-demo', keys: [testKey], ...asTest },
    { partner: 'other', name: 'tests-other', keys: [otherTestKey], ...asTest },
  ],
});
let { processor } = first;

const testAccounts = (filter = {}) =>
  world.stores.db.collection<Account>(TEST_ACCOUNTS).find(filter).toArray();
const list = (key: string): Promise<Answer> =>
  lookedUp(() => send(ingest.url, { method: 'GET', key, path: LIST_PATH }));
const lookUp = (id: string, key = testKey, wait = 30): Promise<Answer> =>
  lookedUp(() =>
    send(ingest.url, {
      method: 'GET',
      key,
      path: `${INGEST_PATH}/${id}`,
      headers: { prefer: `wait=${wait}` },
    }),
  );

async function submitted(fields: object, key = testKey, headers = {}): Promise<string> {
  const answer = await send(ingest.url, { key, headers, body: JSON.stringify(fields) });
  expect(answer.status).toBe(202);
  return requestIdOf(answer);
}

interface Outcome {
  readonly state: string;
  readonly reasons: readonly { readonly field?: string; readonly code: string }[];
}
async function outcomeOf(id: string, key = testKey): Promise<string> {
  const answer = await eventually('a final state', async () => {
    const got = await lookUp(id, key);
    return JSON.stringify(got.json).includes('"processing"') ? undefined : got;
  });
  const { state, reasons } = (answer.json as { data: Outcome }).data;
  return [state, ...reasons.map(({ field, code }) => `${field} ${code}`)].join(', ');
}

test('the same application, live and as a test of two partners, makes three independent applications', async () => {
  const application = newApplication();
  const key = { 'idempotency-key': '"the-same"' };
  const metrics = async () =>
    Promise.all([
      world.metric(ingest, 'partner_ingest_accept_seconds_count'),
      world.metric(ingest, 'partner_ingest_requests_total', { status: '202' }),
      world.metric(ingest, 'partner_ingest_partner_requests_total', { status: '202' }),
      world.metric(processor, 'partner_ingest_completion_seconds_count'),
      world.metric(processor, 'partner_ingest_outcomes_total', { state: 'completed' }),
      world.metric(processor, 'partner_ingest_mails_total'),
    ]);
  expect(await metrics()).toEqual([0, 0, 0, 0, 0, 0]);
  const own = await submitted(application, testKey, key);
  const other = await submitted(application, otherTestKey, key);
  expect(await outcomeOf(own)).toBe('completed');
  expect(await outcomeOf(other, otherTestKey)).toBe('completed');
  expect(await metrics()).toEqual([0, 0, 0, 0, 0, 0]);
  expect(await world.metric(ingest, 'partner_ingest_test_requests_total', { status: '202' })).toBe(
    2,
  );

  const live = await submitted(application, world.key, key);
  expect(await outcomeOf(live, world.key)).toBe('completed');
  expect(await metrics()).toEqual([1, 1, 1, 1, 1, 1]);
  expect(new Set([own, other, live]).size).toBe(3);
  // Sent again, each is its own first.
  expect(await submitted(application, testKey, key)).toBe(own);
  expect(await submitted(application, world.key, key)).toBe(live);
  // Without the idempotency key it is a duplicate among this partner's tests.
  expect(await outcomeOf(await submitted(application))).toBe(
    'rejected, email duplicate_email, ein duplicate_ein',
  );

  for (const [id, stranger] of [
    [live, testKey],
    [own, world.key],
    [own, otherTestKey],
  ] as const)
    expect((await lookUp(id, stranger)).status).toBe(404);
  expect((await list(world.key)).text).not.toContain(own);
  expect((await list(testKey)).text).toContain(own);
  expect((await list(testKey)).text).not.toContain(live);

  expect(world.mail.mails.map(({ to }) => to)).toEqual([[application.email]]);
  expect(await world.accounts()).toMatchObject([{ requestId: live }]);
  const [account] = await testAccounts({ requestId: own });
  expect(Object.values(account?.mail?.handOvers ?? {})).toMatchObject([
    { result: 'accepted', answer: 'test: not sent' },
  ]);
});

test('a submission that waits a minute or an hour is worked on then', async () => {
  for (const [ein, waitsMs] of [
    ['000000005', 60_000],
    ['000000008', 3_600_000],
  ] as const) {
    const id = await submitted({ ...newApplication(), ein });
    const { receivedAt, dueAt } = (await world.record(id))!;
    // Then reconcile gives it the 15 s in which a withdrawal may come.
    expect(dueAt!.getTime() - receivedAt.getTime()).toBe(waitsMs - 15_000);
    expect((await lookUp(id, testKey, 0)).text).toContain('"state":"processing"');
    await hurryReconcile(world, [id]);
    expect(await outcomeOf(id)).toBe('completed');
  }
});

const answersTo = async (ein: string, count: number, headers = {}, key = testKey) => {
  const body = JSON.stringify({ ...newApplication(), ein });
  const answers: Answer[] = [];
  while (answers.length < count) answers.push(await send(ingest.url, { key, body, headers }));
  return answers;
};
const statusesOf = (answers: readonly Answer[]): number[] => answers.map(({ status }) => status);

async function forgetCounts(): Promise<void> {
  const { redis } = world.stores;
  for (const key of await redis.keys('*:limit:*test:*')) await redis.del(key);
}

test('two attempts fail and the third is accepted, on any ingest', async () => {
  await forgetCounts();
  expect(statusesOf(await answersTo('000000501', 6))).toEqual([500, 500, 202, 500, 500, 202]);
  // Another partner has a count of its own.
  expect(statusesOf(await answersTo('000000501', 1, {}, otherTestKey))).toEqual([500]);

  const other = await world.start('ingest');
  const headers = { 'idempotency-key': '"retried"' };
  const request = { key: testKey, body: JSON.stringify({ ...newApplication(), ein: '000000501' }) };
  const answers: Answer[] = [];
  for (const { url } of [ingest, other, ingest, other])
    answers.push(await send(url, { ...request, headers }));
  expect(statusesOf(answers)).toEqual([500, 500, 202, 202]);
  expect(requestIdOf(answers[3]!)).toBe(requestIdOf(answers[2]!));
  // The limiter's keys are all that is kept, and they end.
  const { redis } = world.stores;
  const counted = await redis.keys('*:limit:*test:*');
  expect(counted.length).toBeGreaterThan(0);
  for (const key of counted) {
    expect(await redis.pttl(key)).toBeGreaterThan(0);
    expect(key).not.toContain('retried');
  }
  await other.close();
});

test('the counts of attempts that a partner leaves in Redis are bounded; beyond, they count as without a key', async () => {
  const { redis } = world.stores;
  await forgetCounts();
  const attempts = (key: string, count: number) =>
    answersTo('000000501', count, { 'idempotency-key': `"${key}"` });
  const counts = async () => (await redis.keys('*:limit:*test:*')).length;
  await attempts('first', 1);
  const before = await counts();
  await attempts('second', 1);
  expect(await counts()).toBe(before + 1);
  // As after a thousand of them.
  const [ofPartner] = await redis.keys('*:limit:*test:demo test 501');
  await redis.set(ofPartner!, 1_000, 'KEEPTTL');
  const answers: number[] = [];
  for (let n = 0; n < 6; n += 1) answers.push(...statusesOf(await attempts(`other-${n}`, 1)));
  expect(answers).toEqual([500, 500, 202, 500, 500, 202]);
  expect(await counts()).toBe(before + 2);
  const headers = { 'idempotency-key': '"first"' };
  expect(statusesOf(await answersTo('000000501', 3, headers, otherTestKey))).toEqual([
    500, 500, 202,
  ]);
});

test('a 429 holds for 30 s, is for one EIN of one partner, and then a test is accepted', async () => {
  const { redis } = world.stores;
  await forgetCounts();
  const [began, again] = (await answersTo('000000430', 2)) as [Answer, Answer];
  expect([began.status, again.status]).toEqual([429, 429]);
  expect(Number(began.headers['retry-after'])).toBe(30);
  expect(Number(again.headers['retry-after'])).toBeGreaterThan(1);
  const told = ['limit', 'remaining', 'reset'].map((name) => began.headers[`x-ratelimit-${name}`]);
  expect(told).toEqual(['1000000', '0', '30']);
  const [other] = await answersTo('000000430', 1, {}, otherTestKey);
  expect(other!.headers['retry-after']).toBe('30');
  // The 30 s of this partner are over.
  const [held] = await redis.keys('*:limit:*test:demo*');
  await redis.pexpire(held!, 60_000);
  expect(statusesOf(await answersTo('000000430', 1))).toEqual([202]);
  await redis.del(held!);
  expect(statusesOf(await answersTo('000000430', 1))).toEqual([429]);
});

test('an e-mail bounces a minute after its submission is completed', async () => {
  const submitAll = ['000000009', '000000009', '000000000'].map((ein) =>
    submitted({ ...newApplication(), ein }),
  );
  const [old, young, other] = (await Promise.all(submitAll)) as [string, string, string];
  const outcomes = () => Promise.all([old, young, other].map((id) => outcomeOf(id)));
  expect(await outcomes()).toEqual(['completed', 'completed', 'completed']);
  const stateAt = later(new Date(), -60_000);
  await world.stores.requests.updateMany({ _id: { $in: [old, other] } }, { $set: { stateAt } });
  // The loop begins with a round.
  await processor.close();
  processor = await world.start('processor');
  await world.recordIn('undeliverable', old);
  expect(await outcomes()).toEqual([
    'undeliverable, email unknown_mailbox',
    'completed',
    'completed',
  ]);
});

test('every answer to a test key, and what it shows of a test, says so', async () => {
  const bounced = await submitted({ ...newApplication(), ein: '000000003' });
  expect(await outcomeOf(bounced)).toBe('undeliverable, email unknown_mailbox');
  expect((await lookUp(bounced)).json).toMatchObject({
    message:
      'A test: the account would exist, but the e-mail to the applicant would have been refused for good',
    data: { request_id: bounced, test: true },
  });
  const listed = (await list(testKey)).json as { data: { submissions: { test?: true }[] } };
  expect(listed.data.submissions.map(({ test: isTest }) => isTest)).not.toContain(undefined);
  const live = await submitted(newApplication(), world.key);
  expect(await outcomeOf(live, world.key)).toBe('completed');
  expect((await lookUp(live, world.key)).text).not.toContain('test');

  const said = async (key: string, unknown: string) => {
    const answers = [
      await send(ingest.url, { key, body: '{"ein":"000000500"}' }),
      await send(ingest.url, { key, body: '[]' }),
      await send(ingest.url, { key, method: 'DELETE' }),
      await send(ingest.url, { key, path: '/else' }),
      await list(key),
      await list(unknown),
    ];
    return answers.map(({ status, headers }) => [status, headers['test-submission']]);
  };
  const statuses = [400, 405, 404, 200, 401];
  expect(await said(testKey, newApiKey({ test: true }))).toEqual(
    [500, ...statuses].map((status) => [status, 'true']),
  );
  expect(await said(world.key, newApiKey())).toEqual(
    [202, ...statuses].map((status) => [status, undefined]),
  );
});

test('a test is checked as a live application, and a live EIN chooses nothing', async () => {
  const wrong = { ...newApplication(), email: 'x', ein: '000000000' };
  expect(await outcomeOf(await submitted(wrong))).toBe('rejected, email invalid_format');
  const live = await submitted({ ...newApplication(), ein: '000000004' }, world.key);
  expect(await outcomeOf(live, world.key)).toBe('completed');
});

test('the e-mail of a test goes to TEST_MAIL_TO, or to nobody', async () => {
  await processor.close();
  processor = await world.start('processor', { SMTP_URL: 'smtp://127.0.0.1:1' });
  expect(await outcomeOf(await submitted(newApplication()))).toBe('completed');

  await processor.close();
  world.mail.clear();
  processor = await world.start('processor', { TEST_MAIL_TO: 'tests@example.com' });
  const id = await submitted(newApplication());
  expect(await outcomeOf(id)).toBe('completed');
  expect(world.mail.mails.map(({ to, envelopeTo }) => [to, envelopeTo])).toEqual([
    [['tests@example.com'], ['tests@example.com']],
  ]);
  const [account] = await testAccounts({ requestId: id });
  expect(JSON.stringify(account?.mail)).toContain('(test: sent to TEST_MAIL_TO)');
});

test('live applications overtake the tests that came before them', async () => {
  await processor.close();
  const sendAll = (count: number, key: string) =>
    Promise.all(Array.from({ length: count }, () => submitted(newApplication(), key)));
  const tests = await sendAll(60, testKey);
  const live = await sendAll(5, world.key);
  processor = await world.start('processor');
  const lastOf = async (ids: readonly string[]): Promise<number> => {
    const records = await Promise.all(ids.map((id) => world.recordIn('completed', id)));
    return Math.max(...records.map(({ stateAt }) => stateAt.getTime()));
  };
  expect(await lastOf(live)).toBeLessThan(await lastOf(tests));
});

test('an erasure by EIN, and what it hints at, leaves out tests whose EIN chooses their ending', async () => {
  const cli = cliOf(world);
  const ein = '000000000';
  const others = [
    await submitted({ ...newApplication(), ein }),
    await submitted({ ...newApplication(), ein }, otherTestKey),
  ];
  const own = { ...newApplication(), ein };
  const [id, live] = [
    await submitted(own),
    await submitted({ ...newApplication(), ein }, world.key),
  ];
  for (const each of [...others, id, live]) await world.recordIn('completed', each);
  const byAddress = await cli('erase', '--email', own.email);
  expect(byAddress.stdout).toContain(id);
  const byEin = await cli('erase', '--ein', ein, '--yes', '--as', 'jane', '--why', 'asked');
  expect(byEin).toMatchObject({ code: 0 });
  expect(byEin.stdout).toContain(live);
  for (const other of others) {
    expect(byAddress.stdout + byAddress.stderr).not.toContain(other);
    expect(byEin.stdout + byEin.stderr).not.toContain(other);
    expect(await world.record(other)).toHaveProperty('applicant');
  }
  expect(await world.record(id)).toHaveProperty('applicant');
});

test('operators can find and erase a test, and audit and backlog leave it out', async () => {
  const cli = cliOf(world);
  const application = newApplication();
  const id = await submitted(application);
  expect(await outcomeOf(id)).toBe('completed');
  expect((await cli('find', '--email', application.email)).stdout).toMatch(
    / completed +demo test /,
  );
  const shown = await cli('show', id);
  expect(shown.stdout.split('\n')[0]).toContain(`TEST  ${id}`);
  expect(shown.stdout).toContain('acc_');
  for (const words of [
    ['resend', id, '--yes'],
    ['close', id, '--yes', '--as', 'jane', '--why', 'no'],
  ])
    expect((await cli(...words)).stderr).toContain('is a test');

  const record = (await world.record(id))!;
  const { expiresAt: _kept, bodyUntil: _until, ...open } = record;
  const requests = world.stores.requests;
  const lost: SubmissionRecord[] = (['dead_lettered', 'account_created'] as const).map((state) => ({
    ...open,
    _id: `${id}_${state}`,
    state,
    ...(state === 'dead_lettered' ? {} : { dueAt: later(new Date(), DAY_MS) }),
    bouncedAt: new Date(),
  }));
  await requests.insertMany(lost);
  const { records, bounced } = await readBacklog(world.stores.db, new Date());
  expect({ records, bounced }).toEqual({
    records: { recorded: 0, account_created: 0, dead_lettered: 0 },
    bounced: 0,
  });
  expect(await readPartnerBacklog(world.stores.db)).toEqual([]);
  const audit = await cli('audit', '--json');
  expect(audit).toMatchObject({ code: 0 });
  expect(audit.stdout).not.toContain(id);
  await requests.deleteMany({ _id: { $in: lost.map(({ _id }) => _id) } });

  const erased = await cli('erase', '--email', application.email, '--yes', '--as', 'jane');
  expect(erased).toMatchObject({ code: 0 });
  expect(await testAccounts({ requestId: id, erasedAt: { $exists: false } })).toEqual([]);
  expect(await world.record(id)).not.toHaveProperty('applicant');
});

/** What the servers' TTL monitors would delete `at` that time. */
async function expireAt(at: Date): Promise<void> {
  const { db } = world.stores;
  for (const { name } of await db.listCollections().toArray()) {
    for (const index of await db.collection(name).listIndexes().toArray()) {
      if (index['expireAfterSeconds'] === undefined) continue;
      const [field = ''] = Object.keys(index['key'] as Document);
      const before = later(at, -1_000 * Number(index['expireAfterSeconds']));
      await db.collection(name).deleteMany({
        $and: [(index['partialFilterExpression'] ?? {}) as Document, { [field]: { $lt: before } }],
      });
    }
  }
}

test('after seven days nothing of a test is left in any collection', async () => {
  const { db } = world.stores;
  const tests = await world.records({ test: true });
  expect(new Set(tests.map(({ state }) => state)).size).toBeGreaterThan(2);
  await world.stores.requests.updateOne(
    { _id: tests[0]!._id },
    { $set: { state: 'dead_lettered' }, $unset: { expiresAt: true } },
  );
  const live = await world.records({ test: { $exists: false }, state: 'completed' });
  await expireAt(later(new Date(), 7 * DAY_MS));
  for (const { name } of await db.listCollections().toArray()) {
    // Operators' own words on what they did are kept for two years.
    if (name === 'operator_audit') continue;
    const left = JSON.stringify(await db.collection(name).find().toArray());
    for (const { _id } of tests) expect(left).not.toContain(_id);
  }
  expect(await testAccounts()).toEqual([]);
  expect(await world.records({ state: 'completed' })).toEqual(live);
});
