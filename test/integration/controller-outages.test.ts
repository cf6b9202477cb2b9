/** Partner keys while MongoDB or the controller is away. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { send } from '../support/http.ts';
import { heal, openOwnWorld, type OwnWorld } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, type World } from '../support/world.ts';

/** The leader reads the backlog this often. */
const READ_EVERY_S = 10;

const KEYS_MISSING = 'partner keys are not loaded yet: has the controller finished its first sync?';

let own: OwnWorld;
let world: World;
let ingest: ServiceProcess;

beforeAll(async () => {
  own = await openOwnWorld({ controller: false });
  world = own.world;
  ingest = await startService('ingest', { ...world.environment, LOG_LEVEL: 'info' });
});
afterEach(() => heal(own.mongo));
afterAll(async () => {
  await ingest.stop();
  await own.close();
});

const status = async (key: string): Promise<number> =>
  (await send(ingest.url, { key, body: JSON.stringify(newApplication()) })).status;

test('ingest is not ready before the first sync of a controller, and says why', async () => {
  await eventually('ingest to lack nothing but keys', async () => {
    const readyz = await fetch(`${ingest.adminUrl}/readyz`);
    const told = (await readyz.json()) as { faults: string[] };
    return readyz.status === 503 && told.faults.join() === KEYS_MISSING;
  });
  expect((await fetch(`${ingest.adminUrl}/livez`)).status).toBe(200);
  const controller = await world.start('controller');
  await ingest.ready();
  expect(await status(world.key)).toBe(202);
  await controller.close();
});

test('while MongoDB is away partners get a 500 and not a 401, and the controller reports it', async () => {
  const controller = await world.spawn('controller');
  const secondsUnread = async (by: { readonly adminUrl: string }): Promise<number> =>
    Date.now() / 1_000 - (await world.metric(by, 'partner_ingest_backlog_read_timestamp_seconds'));
  const isRead = async (by: { readonly adminUrl: string }): Promise<boolean> =>
    (await secondsUnread(by)) < READ_EVERY_S;
  await eventually('the backlog to be read', () => isRead(controller));
  await own.mongo.signal('SIGKILL');
  expect(await status(world.key)).toBe(500);
  expect(await status(world.inactiveKey)).toBe(403);
  expect(await status(newApiKey())).toBe(401);
  const late = await startService('controller', { ...world.environment, LOG_LEVEL: 'info' });
  try {
    await eventually('the fault of one that starts now', async () =>
      (await (await fetch(`${late.adminUrl}/readyz`)).text()).includes('the connection is refused'),
    );
    await eventually(
      'a reading to be missed',
      async () => (await secondsUnread(controller)) > READ_EVERY_S + 2,
    );
    await own.mongo.restart();
    // Either controller may lead, and only the leader reads.
    await eventually(
      'the backlog to be read again',
      async () => (await isRead(controller)) || (await isRead(late)),
    );
    await eventually('ingest to accept again', async () => (await status(world.key)) === 202);
    expect((await fetch(`${ingest.adminUrl}/readyz`)).status).toBe(200);
    await late.ready();
    expect(await controller.stop()).toBe(0);
  } finally {
    await late.stop();
  }
});
