/** The backlog that the leader counts and shows, on the real stores. */
import { beforeEach, expect, test } from '@jest/globals';
import { watchBacklog } from '../../internal/controller/watch-backlog.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { readBacklog, BACKLOG_LOOKED_AT } from '../../internal/submission/due-work.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { newTestClock, recordOf } from '../support/records.ts';
import { storesOfFile } from '../support/test-stores.ts';

const HOUR_MS = 3_600_000;
const clock = newTestClock();
const stores = await storesOfFile({ indexes: true });
const collection = stores.requests;

beforeEach(async () => void (await collection.deleteMany({})));

const ago = (ms: number): Date => new Date(clock.now().getTime() - ms);

test('records are counted by state, without final ones, and apart for partners on hold', async () => {
  const final = { dueAt: undefined } as unknown as Partial<SubmissionRecord>;
  await collection.insertMany(
    [
      recordOf({}, ago(HOUR_MS)),
      recordOf({}, ago(2 * HOUR_MS)),
      recordOf({}, ago(3 * HOUR_MS), { state: 'account_created' }),
      recordOf({}, ago(9 * HOUR_MS), { ...final, state: 'completed' }),
      recordOf({}, ago(9 * HOUR_MS), {
        ...final,
        state: 'undeliverable',
        bouncedAt: ago(23 * HOUR_MS),
      }),
      recordOf({}, ago(99 * HOUR_MS), {
        ...final,
        state: 'undeliverable',
        bouncedAt: ago(25 * HOUR_MS),
      }),
      recordOf({}, ago(9 * HOUR_MS), { ...final, state: 'dead_lettered' }),
      recordOf({}, ago(9 * HOUR_MS), { partnerId: 'held' }),
      recordOf({}, ago(8 * HOUR_MS), { partnerId: 'held', state: 'account_created' }),
    ],
    { ignoreUndefined: true },
  );
  expect(await readBacklog(stores.db, clock.now(), ['held'])).toEqual({
    bounced: 1,
    onHold: 2,
    records: { recorded: 2, account_created: 1, dead_lettered: 1 },
    oldestReceivedAt: { recorded: ago(2 * HOUR_MS), account_created: ago(3 * HOUR_MS) },
  });
});

test('the oldest record of a large backlog is found, untried or in its longest back-off', async () => {
  const crowd = Array.from({ length: 3 * BACKLOG_LOOKED_AT }, (_, index) =>
    recordOf({}, ago(index)),
  );
  const untouched = recordOf({}, ago(2 * HOUR_MS));
  const failing = recordOf({}, ago(3 * HOUR_MS), {
    dueAt: new Date(clock.now().getTime() + HOUR_MS),
  });
  await collection.insertMany([...crowd, untouched]);
  expect((await readBacklog(stores.db, clock.now())).oldestReceivedAt.recorded).toEqual(
    untouched.receivedAt,
  );
  await collection.insertOne(failing);
  expect((await readBacklog(stores.db, clock.now())).oldestReceivedAt.recorded).toEqual(
    failing.receivedAt,
  );
});

test('the backlog is shown until the end of the term, and its age grows while the database is away', async () => {
  await collection.insertOne(recordOf({}, ago(HOUR_MS)));
  const registry = createRegistry('controller');
  let away = false;
  const backlog = watchBacklog({
    db: stores.db,
    holds: { list: () => (away ? Promise.reject(new Error('away')) : Promise.resolve([])) },
    queues: { counts: async () => ({ waiting: 2, active: 0, delayed: 0 }) },
    clock,
    log: createLogger('test', 'silent'),
    metrics: createControllerMetrics(registry),
    traffic: { waiting: () => {} },
  });
  const show = () => backlog.run(new AbortController().signal);
  const shown = async (): Promise<string[]> =>
    (await registry.metrics())
      .split('\n')
      .filter((line) =>
        /^partner_ingest_(records|partner_records|oldest_waiting_seconds|queue_jobs)\{/.test(line),
      )
      .map((line) => line.replace(/^partner_ingest_/, '').replace(',component="controller"', ''));
  const expected = (age: number): string[] => [
    'records{state="recorded"} 1',
    'records{state="account_created"} 0',
    'records{state="dead_lettered"} 0',
    'partner_records{partner="demo"} 1',
    `oldest_waiting_seconds{state="recorded"} ${age}`,
    'oldest_waiting_seconds{state="account_created"} 0',
    'queue_jobs{state="waiting"} 2',
    ...['active', 'delayed'].map((state) => `queue_jobs{state="${state}"} 0`),
  ];

  await show();
  expect(await shown()).toEqual(expected(3_600));

  away = true;
  clock.advance(60_000);
  await expect(show()).rejects.toThrow('away');
  expect(await shown()).toEqual(expected(3_660));

  backlog.forget();
  expect(await shown()).toEqual([]);
});
