/** Ingest while MongoDB hangs, dies and returns. */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { MongoClient, type Collection } from 'mongodb';
import { startMongo, type Store } from '../../deploy/local/stores.ts';
import { withDeadline } from '../../internal/platform/process/deadline.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { bodies, expectAnswer, idOf } from '../support/ingest.ts';
import { send, type Answer } from '../support/http.ts';
import { heal } from '../support/processing.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

const ACCEPT_TIMEOUT_MS = 1_000;

let store: Store;
let client: MongoClient;
let records: Collection<SubmissionRecord>;
let world: World;
let ingest: InProcess;

const post = (body = '{"a":1}'): Promise<Answer> => send(ingest.url, { key: world.key, body });

beforeAll(async () => {
  store = await startMongo({ log: () => {} });
  world = await openWorld({
    controller: false,
    environment: { MONGODB_URI: store.url, ACCEPT_TIMEOUT_MS: String(ACCEPT_TIMEOUT_MS) },
  });
  client = new MongoClient(store.url, { serverSelectionTimeoutMS: 5_000 });
  records = client.db(world.stores.database).collection<SubmissionRecord>(SUBMISSIONS);
  await world.start('controller');
  ingest = await world.start('ingest');
});
afterAll(async () => {
  await world.close();
  await client.close();
  await store.stop();
});
beforeEach(() => eventually('ingest to accept', async () => (await post()).status === 202));
afterEach(() => heal(store));

/** All are answered while the store is away, so by their deadline. */
async function expectRefused(requests: readonly Promise<Answer>[]): Promise<string[]> {
  const answers = await withDeadline(Promise.all(requests), HANG_MS, 'refusing');
  return answers.map((answer) => expectAnswer(answer, 500, bodies.internal));
}

/** Once all withdrawals are confirmed, a request answered 500 has at most a withdrawn record. */
async function expectNotAccepted(ids: readonly string[]): Promise<void> {
  await eventually(
    'all withdrawals to be acknowledged',
    async () => (await world.metric(ingest, 'partner_ingest_withdrawals_pending')) === 0,
    HEAL_HANG_MS,
  );
  const found = await records.find({ _id: { $in: [...ids] } }).toArray();
  for (const record of found) {
    expect(record).toMatchObject({
      state: 'withdrawn',
      httpStatus: 500,
      version: 0,
      expiresAt: expect.any(Date),
    });
    expect(record.dueAt).toBeUndefined();
  }
}

async function expectServedAgain(): Promise<void> {
  const answer = await eventually('a 202', async () => {
    const next = await post();
    return next.status === 202 && next;
  });
  expect(await records.findOne({ _id: expectAnswer(answer, 202, bodies.accepted) })).toMatchObject({
    state: 'recorded',
    httpStatus: 202,
  });
}

/** More than the kernel buffers, so that writing stalls. */
const LARGE = JSON.stringify({ business_name: 'x'.repeat(60_000) });

test.each([
  // In more batches than there are connections.
  ['hangs, and hangs again', 2, 'SIGSTOP', (): Promise<void> => store.signal('SIGCONT')],
  ['is killed', 1, 'SIGKILL', (): Promise<void> => store.restart()],
] as const)(
  'when MongoDB %s every request is answered 500 in time, and none is processed later',
  async (_name, times, signal, repair) => {
    for (let round = 0; round < times; round += 1) {
      await store.signal(signal);
      const large = Array.from({ length: 150 }, () => post(LARGE));
      const malformed = [post('[]'), post('x'.repeat(70_000)), post('')];
      const ids = await expectRefused([...large, ...malformed]);
      // What stores nothing is answered as ever, and the pod stays ready, so that partners see the 500s.
      expectAnswer(await send(ingest.url, { body: '{}' }), 401, bodies.keyMissing);
      expect((await fetch(`${ingest.adminUrl}/readyz`)).ok).toBe(true);
      await repair();
      await expectServedAgain();
      await expectNotAccepted(ids);
    }
  },
);

test('an ingest that starts without MongoDB is live but not ready, and gets ready by itself', async () => {
  await store.signal('SIGKILL');
  const starting = world.start('ingest');
  starting.catch(() => {});
  expectAnswer(await send(ingest.url, { body: '{}' }), 401, bodies.keyMissing);
  await store.restart();
  const late = await starting;
  // The first write after a start of the database may take too long.
  const answer = await eventually('a 202', async () => {
    const next = await send(late.url, { key: world.key, body: '{}' });
    return next.status === 202 && next;
  });
  expect(await records.findOne({ _id: idOf(answer) })).toMatchObject({ state: 'recorded' });
  await late.close();
});
