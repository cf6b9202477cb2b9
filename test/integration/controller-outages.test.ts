/** Partner keys while a store is away, and an ingest that is there before the controller. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { send } from '../support/http.ts';
import { heal, openOwnWorld, type OwnWorld } from '../support/processing.ts';
import { IN_FORCE_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, type InProcess, type World } from '../support/world.ts';

/** The leader reads the backlog this often. */
const READ_EVERY_S = 10;

let own: OwnWorld;
let world: World;
let ingest: ServiceProcess;
let first: InProcess;
let beforeSync: {
  readonly ready: number;
  readonly live: number;
  readonly faults: readonly string[];
};

beforeAll(async () => {
  own = await openOwnWorld({ controller: false });
  world = own.world;
  // The test's own connection loses its server, too, which is nothing to report.
  world.stores.redis.on('error', () => {});

  ingest = await startService('ingest', { ...world.environment, LOG_LEVEL: 'info' });
  beforeSync = await eventually('ingest to lack nothing but keys', async () => {
    const readyz = await fetch(`${ingest.adminUrl}/readyz`);
    const { faults } = (await readyz.json()) as { faults: string[] };
    return (
      faults.length === 1 && {
        ready: readyz.status,
        live: (await fetch(`${ingest.adminUrl}/livez`)).status,
        faults,
      }
    );
  });
  first = await world.start('controller');
  await ingest.ready();
});
afterEach(() => Promise.all([heal(own.redis), heal(own.mongo)]));
afterAll(async () => {
  await ingest.stop();
  await own.close();
});

const status = async (key: string): Promise<number> =>
  (await send(ingest.url, { key, body: JSON.stringify(newApplication()) })).status;

test('an ingest that starts before the first sync is not ready, and says why, until a controller has finished one', async () => {
  expect(beforeSync).toEqual({
    ready: 503,
    live: 200,
    faults: ['partner keys are not loaded yet: has the controller finished its first sync?'],
  });
  expect(await status(world.key)).toBe(202);
});

test('Redis away: keys become active and end as fast as ever', async () => {
  await own.redis.signal('SIGKILL');
  const tookMs: number[] = [];
  const becomes = async (key: string, wanted: number): Promise<void> => {
    const startedAt = performance.now();
    await eventually(`${wanted}`, async () => (await status(key)) === wanted, IN_FORCE_HANG_MS);
    tookMs.push(performance.now() - startedAt);
  };
  for (let round = 0; round < 10; round += 1) {
    const key = newApiKey();
    await world.writePartner({ partner: 'late', keys: [key] });
    await becomes(key, 202);
    await rm(join(world.keyFolder, 'late.yaml'));
    await becomes(key, 401);
  }
  const sorted = tookMs.toSorted((a, b) => a - b).map(Math.round);
  console.log(
    `Redis away: changes of Secrets count after ${sorted[10]} ms (p50), ${sorted.at(-1)} ms at most, of 20`,
  );
  await own.redis.restart();
});

test('MongoDB away: keys last seen stay in force, so that partners get the 500 and not a 401', async () => {
  await own.mongo.signal('SIGKILL');
  expect(await status(world.key)).toBe(500);
  expect(await status(world.inactiveKey)).toBe(403);
  expect(await status(newApiKey())).toBe(401);
  await own.mongo.restart();
  await eventually('ingest to accept again', async () => (await status(world.key)) === 202);
  expect((await fetch(`${ingest.adminUrl}/readyz`)).status).toBe(200);
});

test('MongoDB away: a controller that cannot read the backlog lives on, and its ages do', async () => {
  await first.close();
  const controller = await world.spawn('controller');
  const unread = async (): Promise<number> =>
    Date.now() / 1_000 -
    (await world.metric(controller, 'partner_ingest_backlog_read_timestamp_seconds'));
  try {
    await eventually('the backlog to be read', async () => (await unread()) < READ_EVERY_S);
    await own.mongo.signal('SIGKILL');
    await eventually('a reading to be missed', async () => (await unread()) > READ_EVERY_S + 2);
    await own.mongo.restart();
    await eventually('the backlog to be read again', async () => (await unread()) < READ_EVERY_S);
    expect(await controller.stop()).toBe(0);
  } finally {
    await heal(own.mongo);
  }
});

test('a controller that starts while MongoDB is away says so, and is ready once it is there', async () => {
  await own.mongo.signal('SIGKILL');
  const late = await startService('controller', { ...world.environment, LOG_LEVEL: 'info' });
  try {
    const readyz = async (): Promise<string> => (await fetch(`${late.adminUrl}/readyz`)).text();
    await eventually('the fault', async () =>
      (await readyz()).includes('the connection is refused'),
    );
    await heal(own.mongo);
    await late.ready();
  } finally {
    await late.stop();
  }
});
