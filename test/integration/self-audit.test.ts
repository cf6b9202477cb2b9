/** The audit by the leading controller. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { AccountQueries } from '../../internal/account/account-store.ts';
import { accountCollection, type Account } from '../../internal/account/account.ts';
import { aside } from '../../internal/operators/orders/moves.ts';
import type { OrderContext } from '../../internal/operators/orders/order.ts';
import { KeptFindings } from '../../internal/partner/kept-findings.ts';
import { Trail } from '../../internal/operators/trail/trail.ts';
import { selfAudit } from '../../internal/controller/self-audit.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import type { State } from '../../internal/submission/states.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { findingName, kinds, type Kind } from '../../internal/self-audit/rules.ts';
import { PutAside, suspectsAt, whereAside } from '../../internal/self-audit/walk.ts';
import { requestView } from '../../internal/operators/view/request.ts';
import { DAY_MS } from '../../internal/platform/process/clock.ts';
import { newTestClock, recordOf } from '../support/records.ts';
import { storesOfFile } from '../support/test-stores.ts';

const HOUR_MS = 3_600_000;
const clock = newTestClock();
const stores = await storesOfFile({ indexes: true });
const requests = stores.requests;
const accounts = accountCollection(stores.db);

/** A correct record, ten minutes old, with these changes. */
async function plant(
  state: State,
  { account, ...wrong }: Partial<SubmissionRecord> & { account?: Partial<Account> } = {},
): Promise<void> {
  const at = new Date(clock.now().getTime() - HOUR_MS / 6);
  const ends = ['completed', 'rejected', 'closed'].includes(state);
  const record = recordOf({}, at, {
    state,
    history: [{ state, at, attempt: 0 }],
    ...(ends
      ? { expiresAt: new Date(at.getTime() + 24 * HOUR_MS), dueAt: undefined as never }
      : {}),
    ...(state === 'recorded' ? { dueAt: clock.now() } : {}),
    ...wrong,
  });
  await requests.insertOne(record, { ignoreUndefined: true });
  if (account !== undefined) await plantAccount({ requestId: record._id, ...account });
}

async function plantAccount(account: Partial<Account>): Promise<void> {
  const _id = newId('acc', clock.now());
  await accounts.insertOne({
    _id,
    email: _id,
    emailNormalized: _id,
    ein: _id,
    businessName: 'Bakery',
    requestId: _id,
    partnerId: 'demo',
    createdAt: clock.now(),
    ...account,
  });
}

const trailOf = (by: string, why: string): Trail =>
  new Trail({ db: stores.db, clock, by, why, nameFrom: '--as', copy: () => {} });

const storesOf = (submissions: SupportQueries) => ({
  submissions,
  accounts: new AccountQueries(stores.db),
  holds: { list: async () => [] },
  aside: new PutAside(stores.db),
  accountRequestsKeptMs: 0,
});

/** The audit of a leader that has just begun. */
function begun(submissions: SupportQueries) {
  const registry = createRegistry('controller');
  const audit = selfAudit({
    stores: storesOf(submissions),
    kept: new KeptFindings(stores.db),
    clock,
    metrics: createControllerMetrics(registry),
    log: createLogger('test', 'silent'),
  });
  const shown = async (): Promise<Record<string, number>> => {
    const lines = (await registry.metrics()).matchAll(
      /^partner_ingest_audit_findings\{kind="(\w+)".*\} (\d+)$/gm,
    );
    return Object.fromEntries([...lines].map(([, kind, count]) => [kind!, Number(count)]));
  };
  const found = async (): Promise<Record<string, number>> => {
    await audit.run(new AbortController().signal);
    return shown();
  };
  return { audit, found, shown };
}

/** Each page has one record. */
class SmallPages extends SupportQueries {
  override async *checkedPages(after: string | undefined) {
    for await (const page of super.checkedPages(after)) for (const one of page) yield [one];
  }
}

// Pauses between pages are shorter.
const realTimeout = globalThis.setTimeout;
beforeAll(() => {
  globalThis.setTimeout = ((call: () => void, ms = 0, ...rest: []) =>
    realTimeout(call, ms < HOUR_MS / 60 ? ms / 20 : ms, ...rest)) as typeof setTimeout;
});
afterAll(() => void (globalThis.setTimeout = realTimeout));

test('a walk goes on where the round before ended', async () => {
  for (let planted = 0; planted < 60; planted += 1) await plant('rejected');
  await plant('rejected', { history: [] });
  clock.advance(HOUR_MS);
  const wrong = async (leader: ReturnType<typeof begun>) =>
    (await leader.found())['history_disagrees'];
  const leader = begun(new SmallPages(stores.db));
  expect(await wrong(leader)).toBe(0);
  // Three leaders: each one goes on, and knows what those before it have found.
  expect(await wrong(begun(new SmallPages(stores.db)))).toBe(1);
  expect(await wrong(begun(new SmallPages(stores.db)))).toBe(1);
  leader.audit.forget();
  await requests.deleteMany({});
  expect(await wrong(leader)).toBe(0);
});

test('what was put aside is found again once it changes, wherever the walk is', async () => {
  await plant('rejected', { history: [] });
  const { _id: id } = (await requests.findOne({}))!;
  for (let planted = 0; planted < 60; planted += 1) await plant('rejected');
  clock.advance(HOUR_MS);
  const all = storesOf(new SmallPages(stores.db));
  const suspects = await suspectsAt([id], all, clock);
  const found = suspects.found.map(findingName);
  const action = { action: 'aside', requestId: id, aside: found };
  await trailOf('jane', 'a ticket').record(action, async () => true);
  const leader = begun(all.submissions);
  expect((await leader.found())['history_disagrees']).toBe(0);
  await requests.updateOne({ _id: id }, { $set: { httpStatus: 500 } });
  expect((await leader.found())['history_disagrees']).toBe(1);
  leader.audit.forget();
  await requests.deleteMany({});
  expect((await leader.found())['history_disagrees']).toBe(0);
});

test('what an operator puts aside counts no more until what contradicts changes', async () => {
  const leader = begun(new SupportQueries(stores.db));
  const found = async () => {
    const counts = Object.entries(await leader.found());
    return counts.flatMap(([kind, count]) => (count > 0 ? [kind] : []));
  };
  const submissions = new SupportQueries(stores.db);
  const put = async (id: string, by: string) => {
    const desk = {
      submissions,
      accounts: new AccountQueries(stores.db),
      holds: { list: async () => [], isSet: async () => false },
      trail: trailOf(by, `ticket of ${by}`),
      aside: new PutAside(stores.db),
    } as unknown as OrderContext['stores'];
    const order = await aside({ id }, { stores: desk, clock });
    const options = { now: clock.now(), reveal: false };
    const next = async () => (await requestView((await submissions.byId(id))!, desk, options)).next;
    return { order, next };
  };
  const counted = async () => {
    return (await whereAside(storesOf(new SupportQueries(stores.db)), clock)).putAside;
  };
  // Two findings at one request, and one at an account.
  await plant('recorded', { history: [], dueAt: new Date(clock.now().getTime() - HOUR_MS / 10) });
  await plantAccount({});
  const { _id: id } = (await requests.findOne({}))!;
  const { _id: accountId } = (await accounts.findOne({}))!;
  expect(await found()).toEqual(['history_disagrees', 'overdue', 'account_without_request']);

  const [jane, joe] = [await put(id, 'jane'), await put(id, 'joe')];
  expect(await jane.next()).toMatch(`partner-ingest aside ${id} --yes --why REASON`);
  expect(await Promise.all([jane.order.act(), joe.order.act()])).toEqual([true, true]);
  expect((await put(id, 'ann')).order.plan.nothing).toMatch(
    /^(jane|joe) has put it aside already$/,
  );
  expect(await jane.next()).toMatch(/(jane|joe) put aside .* that it .* \(ticket of (jane|joe)\)/);
  expect(await found()).toEqual(['account_without_request']);
  await (await put(accountId, 'jane')).order.act();
  expect(await found()).toEqual([]);
  // Two people put the same two aside.
  expect(await counted()).toBe(3);
  const entries = await trailOf('', '').ofRequest(id);
  expect(entries.map(({ by, action, result }) => `${by} ${action} ${result}`).toSorted()).toEqual([
    'jane aside done',
    'joe aside done',
  ]);

  // A retry moves only what changes by itself.
  const later = new Date(clock.now().getTime() - HOUR_MS / 11);
  await requests.updateOne({ _id: id }, { $set: { dueAt: later } });
  expect(await found()).toEqual([]);
  const seen = await put(id, 'jane');
  await requests.updateOne({ _id: id }, { $set: { httpStatus: 500 } });
  await accounts.updateOne({ _id: accountId }, { $set: { releasedAt: clock.now() } });
  expect(await found()).toEqual([
    'history_disagrees',
    'wrong_answer',
    'overdue',
    'account_without_request',
  ]);
  expect(await counted()).toBe(0);
  // What was seen is no more.
  expect(await seen.order.act()).toBe(false);
  expect((await found()).length).toBe(4);
  await expect(put('req_gone', 'jane')).rejects.toThrow('the audit finds nothing at req_gone');
  await requests.deleteMany({});
  await accounts.deleteMany({});
  expect(await found()).toEqual([]);
});

test('the audit counts the problems until they are settled, each kind once', async () => {
  const { audit, found, shown } = begun(new SupportQueries(stores.db));
  const all = (ofKind: (kind: Kind) => number) =>
    Object.fromEntries(Object.keys(kinds).map((kind) => [kind, ofKind(kind as Kind)]));

  await plant('recorded');
  await plant('completed', {
    accountId: 'acc_right',
    account: { _id: 'acc_right', notifiedAt: clock.now() },
  });
  await plant('rejected');
  expect(await found()).toEqual(all(() => 0));

  await plant('paused' as State);
  await plant('rejected', { history: [] });
  await plant('rejected', { httpStatus: 500 });
  await plant('recorded', { dueAt: undefined as never });
  await plant('recorded', { dueAt: new Date(clock.now().getTime() - HOUR_MS / 10) });
  await plant('rejected', { expiresAt: undefined as never });
  await plant('dead_lettered', { dueAt: undefined as never, expiresAt: clock.now() });
  await plant('completed', { accountId: 'acc_gone' });
  await plant('rejected', { account: {} });
  await plant('completed', { accountId: 'acc_other', account: { notifiedAt: clock.now() } });
  await plant('closed', { account: {} });
  await plant('closed', { releasedAt: clock.now(), account: {} });
  await plant('completed', { accountId: 'acc_silent', account: { _id: 'acc_silent' } });
  await plant('rejected', { erasedAt: clock.now(), account: {} });
  await plantAccount({});
  clock.advance(HOUR_MS);
  await requests.updateMany(
    { state: 'recorded', dueAt: { $gt: new Date(clock.now().getTime() - 1.05 * HOUR_MS) } },
    { $set: { dueAt: clock.now() } },
  );
  expect(await found()).toEqual(all((kind) => (kinds[kind].weight === 'problem' ? 1 : 0)));

  // The walk also reaches a record of last month, whose account is deleted then.
  await plant('completed', {
    accountId: 'acc_month',
    account: { _id: 'acc_month', notifiedAt: clock.now() },
  });
  await requests.deleteMany({ state: 'recorded' });
  clock.advance(30 * DAY_MS);
  const before = await found();
  const deleted = await accounts.findOneAndDelete({ _id: 'acc_month' });
  const missing = { ...before, account_missing: before['account_missing']! + 1 };
  expect(await found()).toEqual(missing);
  clock.advance(2 * HOUR_MS);
  expect(await found()).toEqual(missing);
  await accounts.insertOne(deleted!);
  expect(await found()).toEqual(before);

  await requests.deleteMany({});
  await accounts.deleteMany({});
  expect(await found()).toEqual(all(() => 0));
  audit.forget();
  expect(await shown()).toEqual({});
});
