/**
 * The record is the truth: Redis may be away or lose everything, and every accepted application is
 * still processed.
 */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { Queue } from 'bullmq';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { QUEUE_PREFIX } from '../../internal/queue/job.ts';
import { heal, openOwnWorld, submit, type OwnWorld } from '../support/processing.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, type InProcess, type World } from '../support/world.ts';

const APPLICATIONS = 100;

let own: OwnWorld;
let world: World;
let ingest: InProcess;

beforeAll(async () => {
  own = await openOwnWorld();
  world = own.world;
  // The test's own connection loses its server, too, which is nothing to report.
  world.stores.redis.on('error', () => {});
  ingest = await world.start('ingest');
});
afterAll(() => own.close());
/** One that a failed test left running would do the work of the next test. */
const processors: ServiceProcess[] = [];
afterEach(async () => {
  await heal(own.redis);
  for (const processor of processors.splice(0)) await processor.stop();
});

async function spawnProcessor(): Promise<ServiceProcess> {
  const processor = await world.spawn('processor');
  processors.push(processor);
  return processor;
}

test(`an emptied Redis, away when the processor starts, loses none of ${APPLICATIONS} accepted applications`, async () => {
  const people = Array.from({ length: APPLICATIONS }, newApplication);
  const hintsBefore = await world.metric(ingest, 'partner_ingest_hints_total');
  const ids = await Promise.all(people.map((fields) => submit(world, ingest, fields)));
  const queue = new Queue('applications', {
    connection: world.stores.redis,
    prefix: QUEUE_PREFIX,
    skipVersionCheck: true,
  });
  // Some may fail where Redis is slow, which is as good as lost.
  const told = async (): Promise<number> =>
    (await world.metric(ingest, 'partner_ingest_hints_total')) - hintsBefore;
  await eventually('all hints to be sent, or given up', async () => (await told()) >= APPLICATIONS);
  expect(await queue.getWaitingCount()).toBeGreaterThan(0);
  await world.stores.redis.flushdb();
  expect(await queue.getWaitingCount()).toBe(0);
  await queue.close();

  await own.redis.signal('SIGKILL');
  const startedAt = performance.now();
  const processor = await spawnProcessor();
  expect((await fetch(`${processor.adminUrl}/livez`)).status).toBe(200);
  await own.redis.restart();

  await eventually(
    'all to be completed',
    async () =>
      (await world.records({ _id: { $in: ids }, state: 'completed' })).length === APPLICATIONS,
    HEAL_HANG_MS,
  );
  console.log(`all healed after ${Math.round((performance.now() - startedAt) / 1_000)} s`);
  for (const { email } of people) expect(world.mail.mailsTo(email)).toHaveLength(1);
  expect(await world.accounts({ requestId: { $in: ids } })).toHaveLength(APPLICATIONS);
  await eventually('all to be counted as queued by reconcile', async () => {
    const requeued = await world.metric(processor, 'partner_ingest_reconcile_requeued_total');
    return requeued >= APPLICATIONS;
  });
  expect((await world.record(ids[0]!))?.history.map(({ state }) => state)).toEqual([
    'recorded',
    'account_created',
    'completed',
  ]);
});
