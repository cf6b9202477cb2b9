/**
 * Our stores on a replica set that elects, stalls, loses and cuts off: the set is played in front
 * of the real store.
 */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { getServers, lookup, setServers } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Collection, MongoClient } from 'mongodb';
import { makeCertificate } from '../support/certificate.ts';
import { startDnsServer, type DnsServer } from '../support/dns-server.ts';
import { newRecord } from '../support/records.ts';
import { startReplicaSet, type Door, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';

let stores: TestStores;
/** The store's own view, past the set. */
let stored: Collection<SubmissionRecord>;
let set: ReplicaSet;
let door: Door;
let client: MongoClient;
let records: Collection<SubmissionRecord>;

beforeAll(async () => {
  stores = await openTestStores();
  stored = stores.db.collection<SubmissionRecord>(SUBMISSIONS);
  await stored.insertOne(newRecord());
});
afterAll(() => stores.close());
beforeEach(async () => {
  set = await startReplicaSet(stores.mongodbUri);
  door = await set.door();
  client = createMongo(door.url, 'replica set test', { serverSelectionTimeoutMS: HANG_MS });
  records = client.db(stores.database).collection<SubmissionRecord>(SUBMISSIONS);
});
afterEach(async () => {
  await client.close();
  await set.close();
});

const stateOf = async (record: SubmissionRecord): Promise<string | undefined> =>
  (await stored.findOne({ _id: record._id }))?.state;

test('a driver finds a set of three, and follows an election with its connections open', async () => {
  const roles: string[] = [];
  client.on('topologyDescriptionChanged', ({ newDescription }) => {
    roles.push(
      [...newDescription.servers.values()]
        .map(({ type }) => type)
        .toSorted()
        .join(),
    );
  });
  await records.insertOne(newRecord());
  await eventually('three members', () => roles.includes('RSPrimary,RSSecondary,RSSecondary'));
  const opened = set.opened();
  const record = newRecord();
  let insert: Promise<unknown> | undefined;
  await set.stepDown(async () => {
    await eventually('no primary', () => roles.at(-1) === 'RSSecondary,RSSecondary,RSSecondary');
    // The driver waits for the new primary.
    insert = records.insertOne(record);
  });
  await insert;
  expect(await stateOf(record)).toBe('recorded');
  expect(roles.at(-1)).toBe('RSPrimary,RSSecondary,RSSecondary');
  expect(set.opened() - opened).toBeLessThan(5);
});

test('a stall of the majority applies writes, acknowledges none, and a rollback takes them back', async () => {
  const [before, during] = [newRecord(), newRecord()];
  await records.insertOne(before);
  set.stallMajority();
  const write = { writeConcern: { w: 'majority', wtimeoutMS: 200 } } as const;
  await expect(records.insertOne(during, write)).rejects.toMatchObject({ code: 64 });
  await expect(
    records.updateOne({ _id: before._id }, { $set: { state: 'withdrawn' } }, write),
  ).rejects.toMatchObject({
    code: 64,
  });
  expect([await stateOf(before), await stateOf(during)]).toEqual(['withdrawn', 'recorded']);
  const majority = records.find(
    { _id: { $in: [before._id, during._id] } },
    { readConcern: 'majority' },
  );
  expect(await majority.toArray()).toEqual([]);
  await set.rollBack();
  expect([await stateOf(before), await stateOf(during)]).toEqual(['recorded', undefined]);
  await records.updateOne({ _id: before._id }, { $set: { state: 'withdrawn' } });
  expect(await stateOf(before)).toBe('withdrawn');
});

test('writes whose client has gone before their turn do not hold up a rollback', async () => {
  await records.findOne({});
  set.stallMajority();
  for (let index = 0; index < 30; index += 1) records.insertOne(newRecord()).catch(() => undefined);
  while ((set.commands.get('insert') ?? 0) < 5) await setImmediate();
  door.cut();
  await set.rollBack();
});

test('what was held is acknowledged once the majority is back', async () => {
  set.stallMajority();
  let acknowledged = false;
  const record = newRecord();
  const insert = records.insertOne(record).then(() => (acknowledged = true));
  await eventually('the insert to apply', async () => (await stateOf(record)) === 'recorded');
  expect(acknowledged).toBe(false);
  set.resumeMajority();
  await insert;
});

test('a door that is cut off says nothing, and what was sent through it arrives late', async () => {
  const other = createMongo((await set.door()).url, 'other', { serverSelectionTimeoutMS: HANG_MS });
  await records.findOne({});
  door.part();
  const record = newRecord();
  const insert = records.insertOne(record);
  insert.catch(() => undefined);
  await other.db(stores.database).collection<SubmissionRecord>(SUBMISSIONS).insertOne(newRecord());
  expect(await stateOf(record)).toBeUndefined();
  door.join();
  await insert;
  expect(await stateOf(record)).toBe('recorded');
  await other.close();
});

describe('TLS with a CA of its own, a user and a password', () => {
  const names = ['one', 'two', 'three'].map((name) => `${name}.mongo.test`);
  const login = { username: 'service', password: 'p@ss:w/rd%1' };
  const servers = getServers();
  let folder: string;
  let secured: ReplicaSet;
  let encrypted: Door;
  let nameServer: DnsServer;
  const opened: MongoClient[] = [];

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'mongo-tls-'));
    makeCertificate(folder, ['IP:127.0.0.1', ...names.map((name) => `DNS:${name}`)]);
    const [key, cert] = await Promise.all(
      ['key.pem', 'ca.pem'].map((file) => readFile(join(folder, file))),
    );
    secured = await startReplicaSet(stores.mongodbUri, { login });
    encrypted = await secured.door({ certificate: { key: key!, cert: cert! } });
    nameServer = await startDnsServer({
      srv: {
        '_mongodb._tcp.set.mongo.test': names.map((name, index) => ({
          name,
          port: encrypted.ports[index]!,
        })),
      },
      txt: { 'set.mongo.test': 'replicaSet=rs0&authSource=admin' },
    });
    setServers([nameServer.address]);
  });
  afterAll(async () => {
    setServers(servers);
    await Promise.all(opened.map((one) => one.close()));
    await secured.close();
    await nameServer.close();
    await rm(folder, { recursive: true });
  });

  // The names of the members, which the operating system does not know.
  const here: LookupFunction = (_name, options, callback) => lookup('127.0.0.1', options, callback);
  const withLogin = (password = login.password): string =>
    `${login.username}:${encodeURIComponent(password)}`;
  const insertBy = async (url: string): Promise<string | undefined> => {
    const record = newRecord();
    const one = createMongo(url, 'secured', { lookup: here });
    opened.push(one);
    await one.db(stores.database).collection<SubmissionRecord>(SUBMISSIONS).insertOne(record);
    return stateOf(record);
  };
  const hosts = (): string => encrypted.url.slice('mongodb://'.length);

  test('a URL with its hosts, and one by mongodb+srv, are let in', async () => {
    const ca = `tlsCAFile=${join(folder, 'ca.pem')}`;
    for (const url of [
      `mongodb://${withLogin()}@${hosts()}&authSource=admin&tls=true&${ca}`,
      `mongodb+srv://${withLogin()}@set.mongo.test/?${ca}`,
    ]) {
      // A client gives up after two seconds, which a busy machine may need.
      expect(await eventually('a client to be let in', () => insertBy(url))).toBe('recorded');
    }
  });

  test('who does not know the CA, encrypts nothing, has no login or a wrong one is not', async () => {
    const ca = `tlsCAFile=${join(folder, 'ca.pem')}`;
    /**
     * Why a client is not let in; one that runs out of its two seconds on a busy machine is tried
     * again.
     */
    const refusal = (url: string): Promise<unknown> =>
      eventually('a refusal that is no time-out', async () => {
        const told: unknown = await insertBy(url).catch((error: unknown) => error);
        return !String(told).includes('timed out') && told;
      });
    expect(
      await refusal(`mongodb+srv://${withLogin('wrong')}@set.mongo.test/?${ca}`),
    ).toMatchObject({
      message: expect.stringContaining('Authentication failed'),
    });
    expect(await refusal(`mongodb+srv://set.mongo.test/?${ca}`)).toMatchObject({
      codeName: 'Unauthorized',
    });
    expect(await refusal(`mongodb+srv://${withLogin()}@set.mongo.test/`)).toMatchObject({
      message: expect.stringContaining('self-signed certificate'),
    });
    await expect(
      insertBy(`mongodb://${withLogin()}@${hosts()}&authSource=admin`),
    ).rejects.toThrow();
  });
});
