/**
 * Runs the same operations on the simulation's model of MongoDB and on the database, and compares
 * results and documents.
 */
import { expect, test } from '@jest/globals';
import * as fc from 'fast-check';
import { Binary, type Db } from 'mongodb';
import type { Applicant } from '../../internal/application/fields.ts';
import { AccountQueries, AccountStore } from '../../internal/account/account-store.ts';
import { ACCOUNTS, TEST_ACCOUNTS, type MailOutcome } from '../../internal/account/account.ts';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { LedgerStore } from '../../internal/account/mail-ledger.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import {
  type CommitResult,
  GroupCommit,
  groupCommitLimits,
} from '../../internal/submission/group-commit.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { EarlierRequests } from '../../internal/submission/earlier-requests.ts';
import {
  asLastError,
  RECORD_SCHEMA,
  SUBMISSIONS,
  type Fact,
  type SubmissionRecord,
  type OpenRecord,
} from '../../internal/submission/submission.ts';
import { eventsOf, openStates, states, type State } from '../../internal/submission/states.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { databaseOf, driverOf } from '../simulation/driver.ts';
import { MemoryCollection } from '../simulation/memory-collection.ts';
import { noMetrics, retention, uniqueAccountKeys } from '../simulation/world.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { timedDatabase } from '../support/timed-database.ts';
import { HANG_MS, HEAL_HANG_MS } from '../support/wait.ts';

const ASKED: Fact = { code: 'relay_unusable', of: 'x', words: 'x' };

const START = Date.now();
const SECOND_MS = 1_000;
/** The last one is a test. */
const IDS = 4;
const BODIES = 2;
const KEYS = 2;
const VERSIONS = 3;

const stores = await storesOfFile({ indexes: true });

/** Opens our stores on a database, with a test clock. */
function open(db: Db) {
  const time = { ms: START };
  const clock = { now: () => new Date(time.ms), monotonicMs: () => time.ms };
  const metrics = noMetrics as never;
  return {
    time,
    db,
    submissions: new SupportQueries(db),
    accountQueries: new AccountQueries(db),
    store: new WorkerMoves({ db, retention, clock }),
    due: new DueWork({ db, clock }),
    earlier: new EarlierRequests({ db, onHold: () => ['held'] }),
    earlierTests: new EarlierRequests({ db, onHold: () => [], mode: { test: true } }),
    accounts: new AccountStore({ db, clock }),
    ledger: new LedgerStore({ db, clock }),
    moves: new OperatorMoves({ db: timedDatabase(db, clock.now), retention, clock }),
    corrections: new AccountCorrections({ db, clock }),
    group: new GroupCommit({
      db,
      limits: groupCommitLimits,
      timeoutMs: 5_000,
      clock,
      metrics,
      pendingWithdrawals: () => 0,
    }),
    withdrawals: new Withdrawals({
      db,
      retentionDays: 7,
      clock,
      log: createLogger('test', 'silent'),
      metrics,
    }),
  };
}
type Opened = ReturnType<typeof open>;

function openModel(): Opened {
  const wire = <T>(execute: () => T): Promise<T> => Promise.resolve().then(execute);
  return open(
    databaseOf({
      [SUBMISSIONS]: driverOf(new MemoryCollection(['idempotencyDigest']), wire),
      [ACCOUNTS]: driverOf(new MemoryCollection(uniqueAccountKeys), wire),
      [TEST_ACCOUNTS]: driverOf(new MemoryCollection(), wire),
    }),
  );
}

const applicants: readonly Applicant[] = [
  { email: 'person0@example.com', ein: '100000000', businessName: 'Any' },
  { email: 'person0@example.com', ein: '100000001' },
  { email: 'person1@example.com', ein: '100000000' },
];
const partnerOf = (id: number): string => (id === 1 ? 'held' : 'demo');

const record = (
  id: number,
  state: State,
  version: number,
  dueInMs: number,
  {
    schema = RECORD_SCHEMA,
    key,
  }: { readonly schema?: number; readonly key?: number | undefined } = {},
): SubmissionRecord => ({
  _id: `req_${id}`,
  receivedAt: new Date(START),
  partnerId: partnerOf(id),
  ...(id === IDS ? { test: true as const } : {}),
  ...(id === 0 ? {} : { applicant: applicants[id % applicants.length]! }),
  remoteIp: '127.0.0.1',
  body: new Binary(Buffer.from(`body ${id % BODIES}`)),
  bodyBytes: 6,
  bodySha256: `hash ${id % BODIES}`,
  ...(key === undefined ? {} : { idempotencyDigest: `digest ${key}` }),
  httpStatus: 202,
  schema,
  state,
  stateAt: new Date(START),
  version,
  ...((openStates as readonly State[]).includes(state) ? { dueAt: new Date(START + dueInMs) } : {}),
  attempts: 0,
  history: [{ state, at: new Date(START), attempt: 0 }],
});

/** An operation of a store whose result is compared. */
type Step = readonly [words: string, run: (on: Opened) => Promise<unknown>];

const step = <T>(
  name: string,
  given: fc.Arbitrary<T>,
  run: (on: Opened, given: T) => Promise<unknown>,
): fc.Arbitrary<Step> =>
  given.map((some) => [`${name} ${JSON.stringify(some)}`, (on) => run(on, some).catch(nameOf)]);

const id = fc.nat(IDS);
const version = fc.nat(VERSIONS - 1);
const idempotencyKey = fc.option(fc.nat(KEYS - 1), { nil: undefined });
const openState = fc.constantFrom(...openStates);
const position = fc
  .record({ id, state: openState, version })
  .map(({ id: n, ...rest }) => ({ _id: `req_${n}`, ...rest }));
const nothing = fc.constant(null);

const byIngest: readonly State[] = ['recorded', 'malformed', 'withdrawn'];
const outcomes: readonly MailOutcome[] = [
  { result: 'accepted', phase: 'answered', code: 250 },
  { result: 'ambiguous', cause: 'ECONNECTION' },
  { result: 'refused', phase: 'rcpt', code: 450 },
];
/** Operations at the same time, which share one command, and one statement if they are of a kind. */
const atOnce = <T>(one: fc.Arbitrary<T>) => fc.array(one, { minLength: 1, maxLength: 4 });

const steps: fc.Arbitrary<Step> = fc.oneof(
  step(
    'insert',
    fc.tuple(
      fc.uniqueArray(id, { minLength: 1 }),
      fc.constantFrom(...states),
      version,
      fc.nat(60),
      fc.nat(9),
      idempotencyKey,
    ),
    ({ group }, [ids, state, at, due, odd, key]) => {
      const schema = odd === 0 ? RECORD_SCHEMA + 1 : RECORD_SCHEMA;
      // States that only ingest writes have no claim.
      const claims = byIngest.includes(state) ? at : at + 1;
      const records = ids.map((n) => record(n, state, claims, due * SECOND_MS, { schema, key }));
      return Promise.all(records.map((one) => group.record(one)));
    },
  ),
  step('claim', atOnce(fc.tuple(id, version)), ({ store }, all) =>
    Promise.all(all.map(([n, at]) => store.claim(`req_${n}`, at))),
  ),
  step('renew', atOnce(position), ({ store }, all) =>
    Promise.all(all.map((where) => store.renew(where))),
  ),
  step(
    'move',
    fc.tuple(atOnce(position), fc.constantFrom(...eventsOf.processor)),
    ({ store }, [all, event]) =>
      Promise.all(all.map((where) => store.move(where, event, 1).catch(nameOf))),
  ),
  step(
    'change',
    fc.tuple(position, fc.constantFrom(...eventsOf.processor, 'move_on' as const)),
    ({ store }, [where, event]) => {
      const changes = {
        reasons: [{ field: 'ein', code: 'missing', message: 'x' }],
        ...asLastError(ASKED),
        reason: ASKED,
      } as const;
      return event === 'move_on'
        ? store.moveOn({ ...where, history: [] } as unknown as OpenRecord, 1, changes)
        : store.move(where, event, 1, changes);
    },
  ),
  step('claim and move on', fc.tuple(id, version), async ({ store, db }, [n, at]) => {
    const claimed = await store.claim(`req_${n}`, at);
    if (claimed?.state !== 'recorded') return claimed?.state;
    const moved = await store.moveOn(claimed, 1, { accountId: 'acc_of_it' });
    // It returns what is stored, but for the body.
    const options = { projection: { body: 0 } };
    const stored = await db
      .collection<SubmissionRecord>(SUBMISSIONS)
      .find({ _id: `req_${n}` }, options)
      .toArray();
    expect(plain(inOrder(moved))).toEqual(plain(inOrder(stored[0])));
    return moved;
  }),
  step('several kinds at once', fc.tuple(position, atOnce(position)), ({ store }, [one, others]) =>
    Promise.all([
      store.renew(one),
      ...others.map((where) => store.putBack(where, new Date(START), { attempts: 1 })),
    ]),
  ),
  step('earlier', atOnce(fc.tuple(id, fc.constantFrom(...applicants))), (on, all) =>
    Promise.all(
      all.flatMap(([n, applicant]) => {
        const asker = { _id: `req_${n}`, partnerId: 'demo', applicant };
        return [on.earlier.of(asker), on.earlierTests.of(asker)];
      }),
    ),
  ),
  step(
    'reopen',
    fc.tuple(
      id,
      fc.constantFrom('retry' as const, 'resend' as const, 'correct_address' as const),
      fc.constantFrom('acc_of_it', undefined),
    ),
    async ({ submissions, moves }, [n, event, accountId]) => {
      const seen = await submissions.byId(`req_${n}`);
      return seen && moves.move(event, { seen, accountId }, 'asked');
    },
  ),
  step(
    'put back or apart',
    fc.tuple(position, fc.nat(60), fc.boolean()),
    ({ store }, [where, seconds, apart]) => {
      const until = new Date(seconds * SECOND_MS);
      const counts = { attempts: 1, ambiguous: 1, backedOffMs: 1, ...asLastError(ASKED) };
      return apart ? store.putApart(where, until) : store.putBack(where, until, counts);
    },
  ),
  step('all due', nothing, async ({ due }) => {
    const { records } = await due.read({ withoutPartners: [] });
    return records.toSorted((one, other) => (one._id < other._id ? -1 : 1));
  }),
  step('unknown due', nothing, ({ due }) => due.countUnknown(10)),
  step('note the first sight', nothing, async ({ due }) => {
    const { records } = await due.read({ withoutPartners: [] });
    await due.noteFirstSight(records);
  }),
  step('withdraw', id, ({ withdrawals }, n) => {
    withdrawals.add(record(n, 'recorded', 0, 0));
    return withdrawals.whenSettled();
  }),
  step('account', fc.tuple(id, id, id), ({ accounts }, [n, email, ein]) => {
    const application = {
      email: `Person${email}@example.com`,
      ein: `10000000${ein}`,
      businessName: 'Any',
    };
    const owner = { requestId: `req_${n}`, partnerId: 'demo' };
    return accounts.create(accounts.draft(application, owner));
  }),
  step(
    'mail',
    fc.tuple(id, version, fc.constantFrom(...outcomes)),
    async ({ accountQueries, ledger, time }, [n, claim, outcome]) => {
      const account = await accountQueries.find('requestId', `req_${n}`);
      if (account === undefined) return undefined;
      const now = new Date(time.ms);
      const intent = { claim, startedAt: now, attempt: 1, host: 'here' };
      await ledger.beginHandOver(account, intent, { tokenHash: 'hash', expiresAt: now });
      return ledger.endHandOver(account, intent, outcome);
    },
  ),
  step(
    'operate',
    fc.tuple(id, fc.constantFrom('claim', 'hurry', 'erase', 'correct', 'mail again')),
    async ({ submissions, accountQueries, moves, corrections }, [n, what]) => {
      const seen = await submissions.byId(`req_${n}`);
      const account = await accountQueries.find('requestId', `req_${n}`);
      if (what === 'correct')
        return account && corrections.correctEmail(account, `corrected${n}@example.com`);
      if (what === 'mail again') return account && corrections.mailAgain(account);
      if (seen === undefined) return undefined;
      if (what === 'erase') return moves.move('erase', { seen }, 'asked');
      return what === 'claim' ? moves.claim(seen) : moves.hurry(seen);
    },
  ),
  step('seconds pass', fc.nat(90), async ({ time }, seconds) => (time.ms += seconds * SECOND_MS)),
);

/** Both in the same order of fields. */
const inOrder = (document: object | undefined) =>
  Object.fromEntries(
    Object.entries(document ?? {}).toSorted(([one], [other]) => (one < other ? -1 : 1)),
  );

function nameOf(error: unknown): string {
  return (error as Error).name;
}

/** Replaces ids of accounts and claims, which are new each time. */
function plain(value: unknown): unknown {
  const text = JSON.stringify(value ?? null, (_key, inner: unknown) =>
    inner === null ? undefined : inner,
  );
  return text === undefined
    ? undefined
    : JSON.parse(text.replaceAll(/(acc|claim)_[0-9a-z]{26}/g, '$1'));
}

async function contents({ db }: Opened): Promise<unknown> {
  const all = await Promise.all(
    [SUBMISSIONS, ACCOUNTS].map((name) => db.collection(name).find({}).toArray()),
  );
  return all.map((documents) =>
    documents
      .map(plain)
      .toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1)),
  );
}

let told = 0;
const results = new Set<string>();

async function sameOnBoth(plan: readonly Step[]): Promise<void> {
  await Promise.all(
    [SUBMISSIONS, ACCOUNTS].map((name) => stores.db.collection(name).deleteMany({})),
  );
  const [database, model] = [open(stores.db), openModel()];
  for (const [words, run] of plan) {
    const [answer, modelled] = await Promise.all([run(database), run(model)]);
    expect({ words, answer: plain(modelled) }).toEqual({ words, answer: plain(answer) });
    if (answer !== undefined && answer !== false) told += 1;
    if (words.startsWith('insert'))
      for (const { kind } of answer as CommitResult[]) results.add(kind);
  }
  expect(await contents(model)).toEqual(await contents(database));
}

test('any sequence of operations has the same results in the model and in the database', async () => {
  const before = told;
  await fc.assert(
    fc.asyncProperty(fc.array(steps, { minLength: 10, maxLength: 40, size: 'max' }), sameOnBoth),
    {
      numRuns: 40,
      // The time-out of a sequence shows its steps.
      timeout: HANG_MS,
      interruptAfterTimeLimit: HEAL_HANG_MS,
    },
  );
  expect(told - before).toBeGreaterThan(200);
  // Rare results must occur as well.
  expect([...results]).toEqual(expect.arrayContaining(['mismatched', 'replayed', 'stored']));
});
