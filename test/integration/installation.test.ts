/** An installation knows itself: who may lead on a database, and two that share a Redis. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import {
  INSTALLATION,
  InstallationStore,
  newInstallationId,
} from '../../internal/installation/installation.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_KEYS } from '../../internal/partner/key-document.ts';
import { Closers } from '../../internal/platform/process/closers.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { cliOf } from '../support/cli.ts';
import { folderOfFile } from '../support/folder.ts';
import { readinessOf, send } from '../support/http.ts';
import { installationOf } from '../support/installation-id.ts';
import { newRecord } from '../support/records.ts';
import { storedKeys } from '../support/stored-keys.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, worldOf, type World } from '../support/world.ts';

const { world, controller, ingest } = await worldOf(['controller', 'ingest'], {
  controller: false,
});
const { db } = world.stores;
const cli = cliOf(world);
const strangeKey = newApiKey();
const folder = folderOfFile();
const closers = new Closers(createLogger('test', 'warn'));
const store = new InstallationStore({ db, clock });

beforeAll(() => writePartnerSecret(folder, { partner: 'strange', keys: [strangeKey] }));
afterAll(() => closers.closeAll());

const status = async (key: string): Promise<number> =>
  (await send(ingest.url, { key, body: JSON.stringify(newApplication()) })).status;

/** It need not become ready. */
async function startController(environment: World['environment']): Promise<ServiceProcess> {
  const started = await startService('controller', { ...environment, LOG_LEVEL: 'info' });
  closers.add('controller', () => started.stop());
  return started;
}

/** A controller of another folder on the same database. */
const startStranger = (): Promise<ServiceProcess> =>
  startController({ ...world.environment, PARTNER_KEYS_SOURCE: `directory:${folder}` });

const isRefused = (stranger: ServiceProcess): Promise<boolean> =>
  eventually('the refusal', async () => {
    const { faults } = await readinessOf(stranger);
    return faults.some((fault) => fault.includes(`partner keys are in folder ${world.keyFolder}`));
  });

test('a controller of another folder takes no lease, also when the leader goes, until an order', async () => {
  expect(await status(world.key)).toBe(202);
  const keysBefore = await storedKeys(db);
  const stranger = await startStranger();
  await isRefused(stranger);
  await eventually('the warning of the owner', async () => {
    const { ok, warnings } = await readinessOf(controller);
    return ok && warnings.some((words) => words.includes(`controller of folder ${folder} uses`));
  });
  await controller.close();
  const document = await db.collection(PARTNER_KEYS).findOne({ holder: { $exists: true } });
  // Two refusals later, a lease that was given back is still free.
  const { at } = (await installationOf(db)).refused!;
  await eventually('more refusals', async () => (await installationOf(db)).refused!.at > at);
  expect(await db.collection(PARTNER_KEYS).findOne({ holder: { $exists: true } })).toEqual(
    document,
  );
  expect(await storedKeys(db)).toEqual(keysBefore);
  expect([await status(world.key), await status(strangeKey)]).toEqual([202, 401]);

  const before = await installationOf(db);
  const order = ['installation', 'move', `directory:${folder}`];
  expect((await cli(...order)).stdout).toContain('nothing was changed');
  expect(await cli(...order, '--yes')).toMatchObject({ code: 2 });
  const moved = await cli(...order, '--yes', '--why', 'renamed');
  expect({ code: moved.code, err: moved.stderr.includes('installation move') }).toEqual({
    code: 0,
    err: true,
  });
  expect(await world.trail({ action: 'installation move', result: 'done' })).toHaveLength(1);
  await eventually('the other key', async () => (await status(strangeKey)) === 202);
  const after = await installationOf(db);
  expect(after).toMatchObject({ keysOf: `directory:${folder}` });
  expect(after.id).not.toBe(before.id);

  // The former owner is the stranger now; what runs takes up the new id.
  const former = await startController(world.environment);
  await eventually('its refusal', async () =>
    (await readinessOf(former)).faults.some((fault) => fault.includes(`are in folder ${folder}`)),
  );
  await eventually('the new id in Redis', async () => {
    await status(strangeKey);
    const names = await world.stores.redis.keys('*');
    return names.some((name) => name.startsWith(`partner-ingest:${after.id}:limit:`));
  });
  await former.stop();
  expect(await stranger.stop()).toBe(0);
});

test('a document that was deleted comes back as it was, and nobody else gets the keys', async () => {
  await store.move(await store.read(), `directory:${world.keyFolder}`);
  const owner = await world.start('controller');
  const { id, keysOf } = await installationOf(db);
  await eventually('ingest to know it', async () => {
    await status(world.key);
    const names = await world.stores.redis.keys('*');
    return names.some((name) => name.startsWith(`partner-ingest:${id}:limit:`));
  });
  const stranger = await startStranger();
  await isRefused(stranger);
  // As in a database that was emptied.
  await db.collection(SUBMISSIONS).dropIndexes();
  await db.collection(INSTALLATION).deleteMany({});
  expect(await installationOf(db)).toMatchObject({ id, keysOf });
  await eventually('the indexes', async () => {
    const names = (await db.collection(SUBMISSIONS).indexes()).map(({ name }) => name);
    return names.includes('requests_idempotency');
  });
  await isRefused(stranger);
  expect(await status(world.key)).toBe(202);
  await stranger.stop();
  await owner.close();
});

test('a database of an older version belongs to those whose keys it has', async () => {
  await db.collection(INSTALLATION).deleteMany({});
  // No process may put back what it knows.
  const other = await openWorld({ controller: false });
  closers.add('other world', () => other.close());
  const keys = await db.collection(PARTNER_KEYS).findOne({ holder: { $exists: true } });
  const ofNamespace = (keys!['keys'] as { source: object }[]).map((key) => ({
    ...key,
    source: { namespace: 'acme-keys', name: 'one', uid: '0b4d2e3a-6f52-4b3c-9c0a-3f6d5c1a2b4e' },
  }));
  await other.stores.db
    .collection(PARTNER_KEYS)
    .insertOne({ ...keys!, holder: '', expiresAt: new Date(0), keys: ofNamespace });
  const stranger = await startController(other.environment);
  await eventually('the refusal', async () =>
    (await readinessOf(stranger)).faults.some((fault) => fault.includes('in namespace acme-keys')),
  );
  expect(await storedKeys(other.stores.db)).toHaveLength(ofNamespace.length);
  const order = `installation move directory:${other.keyFolder} --yes --why restored`;
  expect(await cliOf(other)(...order.split(' '))).toMatchObject({ code: 0 });
  await eventually('the lease', async () => (await readinessOf(stranger)).ok);
});

test('of many processes that begin together on an empty database, all get one id and one owner', async () => {
  const fresh = await openWorld({ controller: false });
  closers.add('fresh world', () => fresh.close());
  const tools = { db: fresh.stores.db, clock };
  const ids = await Promise.all(
    Array.from({ length: 50 }, async () => {
      const one = new InstallationStore(tools);
      return eventually('an id', async () => {
        try {
          await one.make({ id: newInstallationId() });
          return (await one.read())?.id;
        } catch {
          // As in the loop, which tries again.
          return undefined;
        }
      });
    }),
  );
  expect(new Set(ids).size).toBe(1);
  const claims = await Promise.all(
    Array.from({ length: 50 }, (_, n) => new InstallationStore(tools).claim(`namespace:n${n}`)),
  );
  expect(claims.filter(Boolean)).toHaveLength(1);
  expect(await fresh.stores.db.collection(INSTALLATION).countDocuments()).toBe(1);
});

test('a processor of another namespace neither works nor is ready until the database is its own', async () => {
  const own = await openWorld({ controller: false });
  closers.add('own world', () => own.close());
  const { db: database } = own.stores;
  const moved = new InstallationStore({ db: database, clock });
  await moved.make({ id: newInstallationId(), keysOf: 'namespace:acme-keys' });
  const record = newRecord({ dueAt: new Date() }, JSON.stringify(newApplication()));
  await own.stores.requests.insertOne(record);
  const environment = { ...own.environment, LOG_LEVEL: 'info' };
  const processor = await startService('processor', {
    ...environment,
    WATCH_NAMESPACES: 'staging-keys',
  });
  closers.add('processor', () => processor.stop());
  await eventually('the refusal', async () =>
    (await readinessOf(processor)).faults.some((fault) => fault.includes('in namespace acme-keys')),
  );
  expect(await own.record(record._id)).toEqual(record);
  await moved.move(await moved.read(), 'namespace:staging-keys');
  await own.recordIn('completed', record._id);

  // A processor that works when another gets the database is ended by its liveness probe.
  expect((await fetch(`${processor.adminUrl}/livez`)).status).toBe(200);
  await moved.move(await moved.read(), 'namespace:acme-keys');
  await eventually('the fault', async () => {
    const { status: live } = await fetch(`${processor.adminUrl}/livez`);
    return live === 503;
  });
});
