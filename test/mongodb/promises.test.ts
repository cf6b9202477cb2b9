/** The promise of 202 and 500 on a real MongoDB. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { MongoClient } from 'mongodb';
import { isOpen } from '../../internal/submission/states.ts';
import { send } from '../support/http.ts';
import { idOf } from '../support/ingest.ts';
import { eventually, HEAL_HANG_MS } from '../support/wait.ts';
import { newApplication, openWorld, type InProcess, type World } from '../support/world.ts';
import { endFault, failWrites } from './server.ts';

const withFailPoints = process.env['TEST_FAIL_POINTS'] === '1' ? test : test.skip;
/** Fewer than the connections of a driver's pool, so that all are under way at once. */
const AT_ONCE = 20;
const STEP_DOWN_SECONDS = 15;
const WRITE_CONCERN_TIMEOUT = 64;
const SHUTDOWN_IN_PROGRESS = 91;
const NOT_WRITABLE_PRIMARY = 10_107;
const STALL_MS = 8_000;

let world: World;
let ingest: InProcess;
let client: MongoClient;

beforeAll(async () => {
  world = await openWorld({ environment: { ACCEPT_TIMEOUT_MS: '2000' } });
  ingest = await world.start('ingest');
  await world.start('processor');
  client = new MongoClient(world.stores.mongodbUri);
});
afterEach(async () => {
  if (process.env['TEST_FAIL_POINTS'] === '1') await endFault(client);
});
afterAll(async () => {
  await world.close();
  await client.close();
});

/** Sends applications at once; returns the status by request_id. */
async function sendMany(): Promise<Map<string, number>> {
  const answers = await Promise.all(
    Array.from({ length: AT_ONCE }, () =>
      send(ingest.url, { key: world.key, body: JSON.stringify(newApplication()) }),
    ),
  );
  return new Map(answers.map((answer) => [idOf(answer), answer.status]));
}

/** Waits until all is final, then compares answers with records. */
async function expectPromise(answers: ReadonlyMap<string, number>): Promise<void> {
  await eventually(
    'all records to be final',
    async () =>
      (await world.metric(ingest, 'partner_ingest_withdrawals_pending')) === 0 &&
      (await world.records()).every(({ state }) => !isOpen(state)),
    HEAL_HANG_MS,
  );
  const states = new Map((await world.records()).map(({ _id, state }) => [_id, state]));
  const broken = [...answers].filter(([id, status]) =>
    status === 202
      ? states.get(id) !== 'completed'
      : ![undefined, 'withdrawn'].includes(states.get(id)),
  );
  expect(broken).toEqual([]);
  expect([...answers.values()].filter((status) => status !== 202 && status !== 500)).toEqual([]);
}

const count = (answers: ReadonlyMap<string, number>, status: number): number =>
  [...answers.values()].filter((one) => one === status).length;

test('in an election under load each answer is true', async () => {
  const sent: Map<string, number>[] = [];
  const steppedDown = client
    .db('admin')
    .command({ replSetStepDown: STEP_DOWN_SECONDS, force: true })
    // The server may close this connection.
    .catch((error: unknown) => error);
  const untilAll = (status: number): Promise<boolean> =>
    eventually(`${AT_ONCE} requests at once to be answered ${status}`, async () => {
      const answers = await sendMany();
      sent.push(answers);
      return count(answers, status) === AT_ONCE;
    });
  await untilAll(500);
  await steppedDown;
  await untilAll(202);
  await expectPromise(new Map(sent.flatMap((answers) => [...answers])));
}, 600_000);

const noMajority = {
  code: WRITE_CONCERN_TIMEOUT,
  errmsg: 'waiting for replication timed out',
};
withFailPoints.each([
  ['writes answer later than a request may wait', { blockConnection: true, blockTimeMS: STALL_MS }],
  ['writes are applied, but no majority acknowledges them', { writeConcernError: noMajority }],
])(
  '%s: all requests are answered 500, and none is processed',
  async (_name, fault) => {
    await failWrites(client, world.stores.database, 'alwaysOn', fault);
    const answers = await sendMany();
    await endFault(client);
    expect(count(answers, 500)).toBe(AT_ONCE);
    await expectPromise(answers);
  },
  600_000,
);

const errorLabels = ['RetryableWriteError'];
withFailPoints.each([
  ['the server is no primary any more', { errorCode: NOT_WRITABLE_PRIMARY, errorLabels }],
  ['the server shuts down', { errorCode: SHUTDOWN_IN_PROGRESS, errorLabels }],
  ['the connection closes', { closeConnection: true }],
])('%s in one write: each answer is true', async (_name, fault) => {
  await failWrites(client, world.stores.database, { times: 1 }, fault);
  await expectPromise(await sendMany());
});
