/** Compares the commands of each process on the wire with its rights in docs/stores.md. */
import { afterAll, expect, test } from '@jest/globals';
import { unlinkSync } from 'node:fs';
import { INSTALLATION } from '../../internal/installation/installation.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { operatorOf } from '../support/cli.ts';
import { documentedRights, rightsOf } from '../support/documented-rights.ts';
import { send } from '../support/http.ts';
import { startMongoWire, type MongoWire } from '../support/mongo-wire.ts';
import { hurryReconcile, submit } from '../support/processing.ts';
import { recordOf } from '../support/records.ts';
import { storedKeys } from '../support/stored-keys.ts';
import { openTestStores } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf } from '../support/world.ts';

const PROCESSES = ['ingest', 'processor', 'controller', 'console'] as const;
type Name = (typeof PROCESSES)[number];
type Speaker = Name | 'operator';

const WRITES = ['insert', 'update', 'delete', 'findAndModify', 'bulkWrite'];

/** The audit asks whether its findings are put aside. */
const wrong = recordOf({}, new Date(), { state: 'rejected', history: [] });

const stores = await openTestStores();
await stores.close();
// Options of the connection string, which must not replace ours.
const url = new URL(stores.mongodbUri);
url.searchParams.set('w', '1');
url.searchParams.set('journal', 'false');
const opened = [...PROCESSES, 'operator' as const].map(
  async (name) => [name, await startMongoWire(url.href)] as const,
);
const wires = Object.fromEntries(await Promise.all(opened)) as Record<Speaker, MongoWire>;
const environment = { MONGODB_URI: wires.operator.url, RATE_LIMIT_MAX: '60' };
const { world } = await worldOf([], { controller: false, environment });
await world.stores.requests.insertOne(wrong);
const start = (name: Name) => world.start(name, { MONGODB_URI: wires[name].url });
const controller = await start('controller');
const ingest = await start('ingest');
const processor = await start('processor');
const desk = await start('console');
afterAll(async () => {
  for (const wire of Object.values(wires)) await wire.close();
});

const used = (name: Name): string[] =>
  [...new Set(wires[name].commands.flatMap(rightsOf))].toSorted();

/** The write concerns of each collection. */
function concerns(): Record<string, readonly string[]> {
  const written = Object.values(wires).flatMap(({ commands }) =>
    commands.flatMap((command) => {
      const [name = '', collection] = Object.entries(command)[0] ?? [];
      // `wtimeout` differs between writes.
      const { w, j } = (command['writeConcern'] ?? {}) as Record<string, unknown>;
      return WRITES.includes(name) ? [[String(collection), JSON.stringify([w, j])] as const] : [];
    }),
  );
  return Object.fromEntries(
    [...Map.groupBy(written, ([collection]) => collection)].map(([collection, all]) => [
      collection,
      [...new Set(all.map(([, concern]) => concern))],
    ]),
  );
}

/** Makes each process send each kind of command that it ever sends to the stores. */
async function live(): Promise<void> {
  const { completed, done } = operatorOf({ world, ingest });
  const { id, application } = await completed();
  await world.recordIn('rejected', await submit(world, ingest, application));
  await send(ingest.url, { method: 'GET', key: world.key, path: `/api/v1/capital/ingest/${id}` });
  await send(ingest.url, { key: world.inactiveKey, body: '{}' });
  const has = (state: string) =>
    eventually(state, async () => (await world.records({ state })).length === 1);
  await has('refused');

  await done('partner', 'hold', 'demo');
  await eventually(
    'the hold',
    async () => (await world.metric(processor, 'partner_ingest_partners_held')) === 1,
  );
  const held = await submit(world, ingest, newApplication());
  await done('partner', 'release', 'demo');
  await hurryReconcile(world, [held]);
  await world.recordIn('completed', held);

  // An answer without write concern makes the record withdrawn.
  wires.ingest.answer((command) =>
    command['insert'] === 'requests'
      ? {
          ok: 1,
          n: 1,
          writeConcernError: { code: 64, codeName: 'WriteConcernTimeout', errmsg: 'played' },
        }
      : undefined,
  );
  const body = JSON.stringify(newApplication());
  expect((await send(ingest.url, { key: world.key, body })).status).toBe(500);
  wires.ingest.answer(() => undefined);
  await has('withdrawn');
}

async function operate(): Promise<void> {
  const { completed, done } = operatorOf({ world, ingest });
  const { id } = await completed();
  await done('show', id, '--reveal', '--why', 'a look');
  await done('resend', id, '--yes');
  await eventually('the second mail', async () => (await world.record(id))!.history.length === 5);
  await world.recordIn('completed', id);
  await done('account', 'correct-email', id, newApplication().email, '--yes');
  await world.recordIn('completed', id);
  await done('account', 'release', id, '--yes');
  await done('erase', id, '--yes');
  await done('aside', wrong._id, '--yes', '--why', 'a look');
}

/** A person at the console opens each page, searches for an applicant and reveals one. */
async function look(): Promise<void> {
  // The counts of what was turned away are read for an id that has no record.
  const unknown = '/requests/req_01arz3ndektsv4rrffq69g5fax';
  const [completed] = await world.records({ state: 'completed' });
  const { _id: id, applicant } = completed!;
  const get = async (path: string) => {
    const page = await fetch(desk.url + path);
    expect({ path, status: page.status }).toEqual({ path, status: path === unknown ? 404 : 200 });
    return page;
  };
  const submitForm = async (page: string, path: string, fields: Record<string, string>) => {
    const form = await get(page);
    const [, token = ''] = /name="_csrf" value="([^"]+)"/.exec(await form.text()) ?? [];
    const answer = await fetch(desk.url + path, {
      method: 'POST',
      headers: { cookie: form.headers.getSetCookie()[0]!.split(';')[0]! },
      body: new URLSearchParams({ _csrf: token, ...fields }),
    });
    expect(await answer.text()).toContain(id);
  };
  for (const path of ['/', '/dead-letters', '/partners', '/partners/demo', '/trail', unknown])
    await get(path);
  await submitForm('/find', '/find', { q: applicant?.email ?? '' });
  await submitForm(`/requests/${id}`, `/requests/${id}/reveal`, { why: 'a look' });
}

async function changeKeys(): Promise<void> {
  const stored = async (): Promise<number> => (await storedKeys(world.stores.db)).length;
  const key = newApiKey({ test: true });
  const annotations = { [MODE_ANNOTATION]: 'test' };
  const few = await world.writePartner({ partner: 'few', keys: [key], annotations });
  await eventually('the key', async () => (await stored()) === 3);
  const body = JSON.stringify(newApplication());
  const accepted = await eventually('a test', async () => {
    const answer = await send(ingest.url, { key, body });
    return answer.status === 202 ? answer : undefined;
  });
  await world.recordIn('completed', requestIdOf(accepted));
  unlinkSync(few);
  await eventually('no key', async () => (await stored()) === 2);
}

test('each process uses exactly its documented rights, and every write waits for majority and journal', async () => {
  await live();
  await look();
  await operate();
  await changeKeys();
  await eventually('a request over the limit', async () => {
    await Promise.all(
      Array.from({ length: 20 }, () => send(ingest.url, { key: 'none', body: '{}' })),
    );
    return (await world.rateLimited()).length > 0;
  });
  // The first process that finds no document makes it.
  await eventually('each to make the installation', async () => {
    await world.stores.db.collection(INSTALLATION).deleteMany({});
    return (['ingest', 'processor', 'controller'] as const).every((name) =>
      used(name).includes(`${INSTALLATION} insert`),
    );
  });
  // Counters are written at the end at the latest.
  for (const service of [ingest, processor, controller, desk]) await service.close();
  const all = (rights: (name: Name) => string[]) =>
    Object.fromEntries(PROCESSES.map((name) => [name, rights(name)]));
  expect(all(used)).toEqual(all(documentedRights));
  const durable = ['["majority",true]'];
  expect(concerns()).toEqual({
    requests: durable,
    accounts: durable,
    test_accounts: durable,
    rate_limited: durable,
    traffic: durable,
    installation: durable,
    partner_keys: durable,
    partner_key_uses: durable,
    partner_holds: durable,
    operator_audit: durable,
  });
});
