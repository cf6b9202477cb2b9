/** The record is the truth: Redis may be away or lose everything, and every accepted application is still processed. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { Queue } from 'bullmq';
import { QUEUE_PREFIX, hintsOf } from '../../internal/queue/job.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { openOwnWorld, submit, type OwnWorld } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, type InProcess, type World } from '../support/world.ts';

const APPLICATIONS = 100;
/** First look after 15 s, grace of 15 s, two rounds of reconcile: about 36 s; twice that for a busy machine. */
const HEALED_WITHIN_MS = 75_000;
/** Reconcile looks at a record 15 s after it came: what is finished earlier came by its hint. */
const BY_HINT_MS = 14_000;

let own: OwnWorld;
let world: World;
let ingest: InProcess;

beforeAll(async () => {
  own = await openOwnWorld();
  world = own.world;
  // The test's own connection loses its server, too, which is nothing to report.
  world.stores.redis.on('error', () => {});
  ingest = await world.start('ingest');
}, 120_000);
afterAll(() => own.close(), 120_000);

test(`an emptied Redis, away when the processor starts, loses none of ${APPLICATIONS} accepted applications`, async () => {
  const people = Array.from({ length: APPLICATIONS }, newApplication);
  const ids = await Promise.all(people.map((fields) => submit(world, ingest, fields)));
  const queue = new Queue('applications', {
    connection: world.stores.redis,
    prefix: QUEUE_PREFIX,
    skipVersionCheck: true,
  });
  const hinted = async (): Promise<number> =>
    (await queue.getWaiting()).flatMap((job) => hintsOf(job.data) ?? []).length;
  await eventually('the hints to be queued', async () => (await hinted()) === APPLICATIONS);
  await world.stores.redis.flushdb();
  expect(await queue.getWaitingCount()).toBe(0);
  expect(await world.stores.redis.dbsize()).toBe(0);
  await queue.close();

  await own.redis.signal('SIGKILL');
  const startedAt = performance.now();
  const processor = await world.spawn('processor');
  expect((await fetch(`${processor.adminUrl}/livez`)).status).toBe(200);
  await own.redis.restart();

  await eventually(
    'all to be completed',
    async () => (await world.records({ _id: { $in: ids }, state: 'completed' })).length === APPLICATIONS,
    HEALED_WITHIN_MS,
  );
  expect(performance.now() - startedAt).toBeLessThan(HEALED_WITHIN_MS);
  for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
  expect(await world.accounts({ requestId: { $in: ids } })).toHaveLength(APPLICATIONS);
  const requeued = await world.metric(processor, 'partner_ingest_reconcile_requeued_total', { state: 'recorded' });
  expect(requeued).toBeGreaterThanOrEqual(APPLICATIONS);
  expect((await world.record(ids[0]!))?.history.map(({ state }) => state)).toEqual([
    'recorded',
    'account_created',
    'completed',
  ]);
  await processor.stop();
}, 110_000);

test('a queue that forgot a job, but not its id, cannot keep the application waiting', async () => {
  const { redis } = world.stores;
  const id = await submit(world, ingest, newApplication());
  const waiting = `${QUEUE_PREFIX}:applications:wait`;
  await eventually('its hint to be queued', async () => (await redis.llen(waiting)) === 1);
  // As an evicting Redis does: the list is gone, the job's own key stays and stands in the way of the same id.
  await redis.unlink(waiting);
  expect(await redis.exists(`${QUEUE_PREFIX}:applications:${id}-0`)).toBe(1);
  const requests = world.stores.db.collection<SubmissionRecord>(SUBMISSIONS);
  await requests.updateOne({ _id: id }, { $set: { dueAt: new Date(), firstSeenAt: new Date() } });

  const processor = await world.spawn('processor');
  await world.recordIn('completed', id, 15_000);
  await processor.stop();
});

test('Redis killed and restarted under work: the workers go on by themselves', async () => {
  const processor = await world.spawn('processor');
  await own.redis.signal('SIGKILL');
  await own.redis.restart();
  await eventually(
    'both workers to wait for jobs again',
    async () => {
      const clients = String(await world.stores.redis.client('LIST'));
      return clients.split('\n').filter((line) => line.includes('cmd=bzpopmin')).length >= 2;
    },
    30_000,
  );
  // The door may still be about to connect, and its first hint be lost; from the next on there is nothing to wait for.
  await world.recordIn('completed', await submit(world, ingest, newApplication()), HEALED_WITHIN_MS);
  const sentAt = performance.now();
  const people = Array.from({ length: 3 }, newApplication);
  for (const fields of people) await world.recordIn('completed', await submit(world, ingest, fields), 30_000);
  expect(performance.now() - sentAt).toBeLessThan(BY_HINT_MS);
  for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
  await processor.stop();
}, 180_000);
