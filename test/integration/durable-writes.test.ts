/**
 * What each process says to MongoDB, seen on the wire: every write waits for majority and journal,
 * whatever sends it.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { cliOf } from '../support/cli.ts';
import { startMongoWire, type MongoWire } from '../support/mongo-wire.ts';
import { submit } from '../support/processing.ts';
import { send } from '../support/http.ts';
import { openTestStores } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';
import {
  newApplication,
  openWorld,
  requestIdOf,
  type InProcess,
  type World,
} from '../support/world.ts';

const WRITES = ['insert', 'update', 'delete', 'findAndModify', 'bulkWrite'];

let world: World;
let wire: MongoWire;
let ingest: InProcess;

beforeAll(async () => {
  const stores = await openTestStores();
  wire = await startMongoWire(stores.mongodbUri);
  await stores.close();
  const url = new URL(wire.url);
  // What a connection string may say, and must not get.
  url.searchParams.set('w', '1');
  url.searchParams.set('journal', 'false');
  world = await openWorld({ environment: { MONGODB_URI: url.href, RATE_LIMIT_MAX: '40' } });
  ingest = await world.start('ingest');
  await world.start('processor');
});
afterAll(async () => {
  await world.close();
  await wire.close();
});

/** Collections that were written to, each with the write concerns asked for there. */
function concerns(): Record<string, readonly unknown[]> {
  const written = wire.commands.flatMap((command) => {
    // A command's first field is its name.
    const name = WRITES.find((write) => write === Object.keys(command)[0]);
    // How long the server waits for the majority (`wtimeout`) differs between writes.
    const { w, j } = (command['writeConcern'] ?? {}) as Record<string, unknown>;
    return name === undefined ? [] : [[String(command[name]), { w, j }] as const];
  });
  const collections = Map.groupBy(written, ([collection]) => collection);
  return Object.fromEntries(
    [...collections].map(([collection, all]) => [
      collection,
      [...new Set(all.map(([, concern]) => JSON.stringify(concern)))].map(
        (text) => JSON.parse(text) as unknown,
      ),
    ]),
  );
}

test('every write of every process, and of the operator, waits for majority and journal, whatever the URI says', async () => {
  const cli = cliOf(world);
  const [application, other] = [newApplication(), newApplication()];
  const id = await submit(world, ingest, application);
  await world.recordIn('completed', id);
  await world.recordIn('rejected', await submit(world, ingest, application));
  const malformed = requestIdOf(await send(ingest.url, { key: world.key, body: '[]' }));
  await send(ingest.url, { key: world.inactiveKey, body: '{}' });
  await eventually(
    'the refused record',
    async () => (await world.records({ state: 'refused' })).length === 1,
  );
  await eventually('a request over the limit', async () => {
    await Promise.all(
      Array.from({ length: 20 }, () => send(ingest.url, { key: 'none', body: '{}' })),
    );
    return (await world.rateLimited()).length > 0;
  });
  for (const words of [
    ['show', id, '--reveal', '--why', 'a look'],
    ['resend', id, '--yes'],
  ]) {
    expect(await cli(...words)).toMatchObject({ code: 0 });
  }
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  await world.recordIn('completed', id);
  for (const words of [
    ['account', 'correct-email', id, other.email, '--yes'],
    ['erase', malformed, '--yes'],
  ]) {
    expect(await cli(...words)).toMatchObject({ code: 0 });
  }
  await world.recordIn('completed', id);
  expect(await cli('account', 'release', id, '--yes')).toMatchObject({ code: 0 });
  expect(await cli('erase', id, '--yes')).toMatchObject({ code: 0 });

  const durable = [{ w: 'majority', j: true }];
  expect(concerns()).toEqual({
    requests: durable,
    accounts: durable,
    rate_limited: durable,
    partner_keys: durable,
    partner_key_sync: durable,
    operator_audit: durable,
  });
});

test('what is to expire does so at its time: each index for it adds nothing to the date in the document', async () => {
  const { db } = world.stores;
  // The operators' trail is made with its first entry.
  await cliOf(world)('find', '--email', 'nobody@example.com');
  const expiring: Record<string, unknown> = {};
  for (const { name } of await db.listCollections().toArray()) {
    for (const index of await db.collection(name).listIndexes().toArray()) {
      if (index['key'].expiresAt !== undefined) expiring[name] = index['expireAfterSeconds'];
    }
  }
  expect(expiring).toEqual({ requests: 0, rate_limited: 0, operator_audit: 0 });
});
