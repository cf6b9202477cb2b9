/** Each loop reports that it lacks a right on the database. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceName } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { OUTCOMES_PATH } from '../../internal/ingest/contract.ts';
import { INSTALLATION } from '../../internal/installation/installation.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import type { loops } from '../../internal/telemetry/definition.ts';
import { INGEST_PATH, send } from '../support/http.ts';
import { newRecord } from '../support/records.ts';
import { startReplicaSet, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

type LoopName = (typeof loops)[number];
type Played = ServiceName | 'standby';

/** Where each loop runs, and the database command that it needs. */
const rights: Readonly<
  Record<LoopName, readonly [of: Played, command: string] | `needs no right: ${string}`>
> = {
  audit: ['controller', 'find'],
  backlog: ['controller', 'aggregate'],
  clock: ['ingest', 'hello'],
  credentials: 'needs no right: it reads files',
  expiry: ['processor', 'find'],
  holds: ['processor', 'find'],
  installation: ['ingest', 'find'],
  key_uses: ['ingest', 'update'],
  keys: ['ingest', 'find'],
  lease: ['standby', 'update'],
  living_pods: ['ingest', 'update'],
  old_queue: 'needs no right: it asks Redis',
  outcome_waits: ['ingest', 'find'],
  over_limit: ['ingest', 'update'],
  partner_secrets: ['controller', 'find'],
  partner_status: 'needs no right: without `Partner`s it reads nothing',
  pods: 'needs no right: each pod shows its own fault',
  probe: 'needs no right: it asks ingest',
  reconcile: ['processor', 'find'],
  status_waits: ['ingest', 'find'],
  stored: ['console', 'find'],
  traffic: ['ingest', 'update'],
  unknown_records: ['processor', 'aggregate'],
};

const UNAUTHORIZED = { code: 13, codeName: 'Unauthorized' };
const LONG_MS = 30_000;
const realTimeout = setTimeout;
let world: World;
const sets: ReplicaSet[] = [];

beforeAll(async () => {
  // Bounds of minutes and hours pass in seconds, in their order.
  const shorter = (ms: number): number =>
    ms > LONG_MS ? (LONG_MS / 2) * (1 + Math.log(ms / LONG_MS)) : ms;
  globalThis.setTimeout = ((call: () => void, ms = 0, ...rest: []) =>
    realTimeout(call, shorter(ms), ...rest)) as typeof setTimeout;
  world = await openWorld({ controller: false });
});
afterAll(async () => {
  globalThis.setTimeout = realTimeout;
  await world.close();
  for (const set of sets) await set.close();
});

/** Asks for all that loops of ingest write and read. */
async function use({ url }: InProcess): Promise<void> {
  for (const key of [world.key, newApiKey()]) await send(url, { key, body: '{}' });
}

/** A look-up and outcomes that wait longer than their loops may fail. */
async function holdWaits({ url }: InProcess): Promise<void> {
  const record = newRecord({ dueAt: new Date(Date.now() + 86_400_000) });
  await world.stores.requests.insertOne(record);
  const lookUp = { key: world.key, method: 'GET', path: `${INGEST_PATH}/${record._id}` };
  for (const path of [lookUp.path, OUTCOMES_PATH])
    void send(url, { ...lookUp, path, headers: { prefer: 'wait=30' } }).catch(() => {});
  // While this one waits, the other outcomes are read.
  const shortly = { ...lookUp, path: OUTCOMES_PATH, headers: { prefer: 'wait=2' } };
  expect((await send(url, shortly)).status).toBe(200);
  // Reads are answered in their order.
  expect((await send(url, lookUp)).status).toBe(200);
}

async function start(of: Played) {
  const set = await startReplicaSet(world.stores.mongodbUri);
  sets.push(set);
  // A leader audits at once.
  if (of === 'controller') set.refuse('find', UNAUTHORIZED, { only: SUBMISSIONS });
  const process = await world.start(of === 'standby' ? 'controller' : of, {
    MONGODB_URI: (await set.door()).url,
    RATE_LIMIT_MAX: '4',
  });
  return { of, set, process };
}

async function play({ of, set, process }: Awaited<ReturnType<typeof start>>): Promise<void> {
  const mine = Object.entries(rights).filter(([, right]) => right[0] === of);
  const left = new Set(mine.map(([loop]) => loop));
  const commands = new Set(mine.map(([, [, command = '']]) => command));
  const readyz = async (): Promise<string> => (await fetch(`${process.adminUrl}/readyz`)).text();
  if (of === 'ingest') await holdWaits(process);
  // A controller that cannot read whose database it is does not lead.
  const collections = of === 'controller' ? { except: INSTALLATION } : {};
  for (const command of commands) set.refuse(command, UNAUTHORIZED, collections);
  const allFailed = async (): Promise<boolean> => {
    if (of === 'ingest') await use(process);
    const told = /failing loops: ([^:]*): MongoDB at [^"]*: we lack a right \(Unauthorized, 13\)/g;
    const loops = [...(await readyz()).matchAll(told)].flatMap(([, one = '']) => one.split(', '));
    for (const loop of loops)
      if ((await world.metric(process, 'partner_ingest_loop_failing', { loop })) === 1)
        left.delete(loop);
    return left.size === 0;
  };
  await eventually('all to fail', allFailed, HEAL_HANG_MS).catch((error: unknown) => {
    throw new Error(`${of} never told of ${[...left].join(', ')}`, { cause: error });
  });
  for (const command of commands) set.refuse(command);
  const noneFails = async (): Promise<boolean> =>
    (await world.metric(process, 'partner_ingest_loop_failing')) === 0 &&
    !(await readyz()).includes('failing loops');
  await eventually(`all of ${of} to succeed again`, noneFails, HEAL_HANG_MS);
}

test('a loop without its database right shows in /readyz and its gauge until it is granted', async () => {
  const started = [];
  // The first controller leads when it is ready, so the last one stands by.
  for (const name of ['controller', 'ingest', 'processor', 'console', 'standby'] as const)
    started.push(await start(name));
  await Promise.all(started.map(play));
});
