/**
 * The world of a chaos run: stores behind proxies, a mail catcher and real child processes in
 * slots.
 */
import { generateKeyPairSync } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { MongoClient } from 'mongodb';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startMailCatcher } from '../support/mail-catcher.ts';
import { sumOf } from '../support/metrics-text.ts';
import {
  startService,
  type ServiceName,
  type ServiceProcess,
} from '../../deploy/local/processes.ts';
import { startMongo, startRedis, type Store } from '../../deploy/local/stores.ts';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { readKeySet } from '../../internal/receipt/receipt.ts';
import { startRedisCluster, startRedisSentinel, type RedisSet } from '../support/redis-sets.ts';
import { startReplicaSet, type Door } from '../support/replica-set/replica-set.ts';
import { ROOT } from '../../tools/root.ts';
import { leapingClock } from '../support/leaping-clock.ts';
import { startTcpProxy } from '../support/tcp-proxy.ts';
import { Facts } from './facts.ts';
import type { Target } from './load.ts';
import type { Random } from '../support/random.ts';
import { openPowerDisk, type PowerDisk } from './power-disk.ts';

/** Short, so that a hung MongoDB leaves many writes in doubt. */
export const ACCEPT_TIMEOUT_MS = 700;
const DATABASE = 'chaos';
const SLOTS: readonly ServiceName[] = ['ingest', 'ingest', 'processor', 'processor', 'controller'];
const SCRAPE_TIMEOUT_MS = 300;
/** Of a process that SIGKILL ends. */
const EXIT_KILLED = 137;

const startRedisSet = { sentinel: startRedisSentinel, cluster: startRedisCluster } as const;
export type RedisSetKind = keyof typeof startRedisSet;

/** A place for one process at a time. */
export interface Slot {
  readonly name: ServiceName;
  readonly label: string;
  /** The port stays the same, as in a pod. */
  readonly adminPort: number;
  /** Its own connection to MongoDB, so that it can be cut off alone. */
  readonly door: Door;
  /** The number of processes started in it. */
  generation: number;
  process: ServiceProcess | undefined;
  /** Set before the run itself ends the process; other ends are unexpected. */
  ending: boolean;
  ready: boolean;
  /** How its last process ended, as Kubernetes has it. */
  ended?: { readonly exitCode: number; readonly finishedAt: Date };
}

export type ChaosWorld = Awaited<ReturnType<typeof open>>;

interface ChaosWorldOptions {
  readonly folder: string;
  readonly random: Random;
  readonly onPowerDisks: boolean;
  readonly postgresql: readonly string[];
  readonly settings?: Readonly<Record<string, string>>;
  /** The folder of the version that is started first; ours where there is none. */
  readonly project?: string;
  readonly slots?: readonly ServiceName[];
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
}

/** Opens everything and waits until it is ready; closes all if that fails. */
export async function openChaosWorld(options: ChaosWorldOptions): Promise<ChaosWorld> {
  const opened: (() => Promise<unknown>)[] = [];
  const close = async (): Promise<void> => {
    for (const end of opened.splice(0).toReversed()) {
      await end().catch((error: unknown) => options.log(`closing: ${String(error)}`));
    }
  };
  try {
    return await open(options, opened, close);
  } catch (error) {
    await close();
    throw error;
  }
}

async function open(
  options: ChaosWorldOptions,
  opened: (() => Promise<unknown>)[],
  close: () => Promise<void>,
) {
  const { folder, random, signal, log } = options;
  await mkdir(folder, { recursive: true });
  const { mongo: database, redis, disks } = await openStores(options, opened);
  const mongo: Store = {
    ...database,
    restart: async () => {
      await database.restart();
      facts.databaseBack.push(Date.now());
    },
  };
  const mongoProxy = await startTcpProxy(mongo.url, () => random.next());
  opened.push(() => mongoProxy.close());
  const replicaSet = await startReplicaSet(mongoProxy.url, { directUrl: mongo.url });
  opened.push(() => replicaSet.close());
  const redisProxy = await startTcpProxy(redis.url, () => random.next());
  opened.push(() => redisProxy.close());
  const redisSets: Partial<Record<RedisSetKind, RedisSet>> = {};
  opened.push(async () => {
    for (const set of Object.values(redisSets)) await set.stop();
  });
  const mail = await startMailCatcher();
  opened.push(() => mail.close());
  const client = new MongoClient(mongo.url, {
    serverSelectionTimeoutMS: 2_000,
    socketTimeoutMS: 10_000,
  });
  opened.push(() => client.close());
  const direct = new Redis(redis.url, { maxRetriesPerRequest: 0 });
  direct.on('error', () => undefined);
  opened.push(async () => direct.disconnect());

  const keys = { good: newApiKey(), inactive: newApiKey(), unknown: newApiKey() };
  const keyFolder = join(folder, 'partner-keys');
  await writePartnerSecret(keyFolder, { partner: 'demo', keys: [keys.good] });
  await writePartnerSecret(keyFolder, {
    partner: 'dormant',
    keys: [keys.inactive],
    status: 'inactive',
  });
  const receiptKeys = newReceiptKeys();
  const environment = {
    MONGODB_DATABASE: DATABASE,
    REDIS_URL: redisProxy.url,
    NODE_EXTRA_CA_CERTS: '',
    ACCEPT_TIMEOUT_MS: String(ACCEPT_TIMEOUT_MS),
    RATE_LIMIT_MAX: '1000000000',
    SMTP_URL: mail.smtpUrl,
    MAIL_FROM: 'accounts@partner-ingest.example',
    LOGIN_URL: 'https://login.partner-ingest.example/',
    RECEIPT_KEYS: receiptKeys,
    LINK_SECRET: 'a-secret-for-chaos-of-32-characters-or-more',
    PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
    ...leapingClock(),
    ...options.settings,
  };
  const facts = new Facts(mail);
  const slots: Slot[] = [];
  for (const name of options.slots ?? SLOTS) {
    const label = `${name}-${slots.filter((other) => other.name === name).length + 1}`;
    const adminPort = await freePort();
    const door = await replicaSet.door();
    slots.push({
      name,
      label,
      adminPort,
      door,
      generation: 0,
      process: undefined,
      ending: false,
      ready: false,
    });
  }

  let project = options.project ?? ROOT;
  let closing = false;
  const slotsOf = (name: ServiceName): Slot[] => slots.filter((slot) => slot.name === name);
  /** Starts a process in an empty slot and waits until it is ready. */
  const start = async (slot: Slot, more: Readonly<Record<string, string>> = {}): Promise<void> => {
    slot.generation += 1;
    slot.ending = false;
    const instance = instanceOf(slot);
    const own = { MONGODB_URI: slot.door.url, ADMIN_PORT: String(slot.adminPort) };
    const logFile = join(folder, `${slot.label}.log`);
    const settings = { ...environment, ...more, ...own };
    const started = await startService(slot.name, settings, { logFile, project });
    slot.process = started;
    if (closing) return drain(slot);
    void started.exited.then(({ code }) => {
      if (slot.process === started) slot.process = undefined;
      slot.ended = { exitCode: code ?? EXIT_KILLED, finishedAt: new Date() };
      if (!slot.ending) facts.trouble(`${instance} ended by itself (${code}); see ${logFile}`);
    });
    await started.ready();
    slot.ready = true;
  };
  const kill = async (slot: Slot): Promise<void> => {
    const dying = slot.process;
    if (dying === undefined) return;
    [slot.ending, slot.ready] = [true, false];
    facts.killed(instanceOf(slot), slot.name);
    dying.child.kill('SIGKILL');
    await dying.exited;
  };
  /** Sends SIGTERM and reports an exit code other than 0. */
  const drain = async (slot: Slot): Promise<void> => {
    slot.ending = true;
    const code = await slot.process?.stop();
    slot.ready = false;
    if ((code ?? 0) !== 0) facts.trouble(`${instanceOf(slot)} ended with ${code} after SIGTERM`);
  };
  const replace = async (slot: Slot): Promise<void> => {
    // Kubernetes withdraws the endpoint first.
    slot.ready = false;
    await drain(slot);
    await start(slot);
  };
  opened.push(async () => {
    closing = true;
    for (const slot of slots) slot.process?.child.kill('SIGCONT');
    await Promise.all(slots.map(drain));
  });
  log(`stores: ${mongo.description}, ${redis.description}`);
  await Promise.all(slots.map((slot) => start(slot)));
  return {
    mongo,
    redis,
    disks,
    mongoProxy,
    /** Processes reach the store through a replica set and a proxy. */
    replicaSet,
    redisProxy,
    redisSets,
    mail,
    db: client.db(DATABASE),
    slots,
    facts,
    signal,
    keyFolder,
    keys,
    receiptKeys: readKeySet(receiptKeys),
    targets: (): Target[] =>
      slotsOf('ingest').flatMap((slot) =>
        slot.process === undefined || !slot.ready
          ? []
          : { instance: instanceOf(slot), url: slot.process.url },
      ),
    slotsOf,
    start,
    kill,
    drain,
    /** Another process follows, of the version that is used now. */
    replace,
    /** Processes that start from now on are of the version in that folder. */
    useVersion: (path: string): void => void (project = path),
    /** Of the processes, for an operator's command. */
    environment: { ...environment, MONGODB_URI: mongo.url },
    stop: (slot: Slot, how: 'SIGSTOP' | 'SIGCONT'): void => {
      if (slot.name === 'processor') facts.processorStopped();
      slot.process?.child.kill(how);
    },
    /** Waits for the duration of a fault, or until the run is aborted. */
    pause: (milliseconds: number) => pause(milliseconds, signal),
    emptyRedis: async () => void (await direct.flushall()),
    /** Moves each process to this Redis; undefined is the single server. */
    useRedis: async (kind: RedisSetKind | undefined): Promise<void> => {
      if (kind !== undefined) redisSets[kind] ??= await startRedisSet[kind]();
      const url = kind === undefined ? redisProxy.url : redisSets[kind]!.url;
      if (url === environment.REDIS_URL) return;
      environment.REDIS_URL = url;
      environment.NODE_EXTRA_CA_CERTS = kind === undefined ? '' : redisSets[kind]!.ca;
      for (const slot of slots) await replace(slot);
    },
    /** Sums a metric over the live ingest processes. */
    ingestMetric: async (name: string): Promise<number> => {
      const values = await Promise.all(
        slotsOf('ingest').map(({ process: ingest }) => metricOf(ingest, name)),
      );
      return values.reduce((sum, value) => sum + value, 0);
    },
    close,
  };
}

async function openStores(
  { folder, onPowerDisks, postgresql, log }: ChaosWorldOptions,
  opened: (() => Promise<unknown>)[],
): Promise<{ mongo: Store; redis: Store; disks: readonly PowerDisk[] }> {
  if ([process.env['MONGODB_URI'], process.env['REDIS_URL']].some(Boolean)) {
    throw new Error(
      'chaos kills its stores: unset MONGODB_URI and REDIS_URL, and stores are started here (Docker, PATH or fetched)',
    );
  }
  const disks: PowerDisk[] = [];
  const dataOn = async (name: string): Promise<string | undefined> => {
    if (!onPowerDisks) return undefined;
    const disk = await openPowerDisk(join(folder, `disk-${name}`), log);
    disks.push(disk);
    opened.push(() => disk.close());
    return disk.folder;
  };
  const mongo = await startMongo({ log, data: await dataOn('mongodb'), postgresql });
  opened.push(() => mongo.stop());
  const redis = await startRedis({ log, data: await dataOn('redis') });
  opened.push(() => redis.stop());
  await Promise.all(disks.map((disk) => disk.sync()));
  return { mongo, redis, disks };
}

function instanceOf(slot: Slot): string {
  return `${slot.label}.${slot.generation}`;
}

function newReceiptKeys(): string {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const issuer = 'https://partner-ingest.example/api/v1';
  return JSON.stringify({ issuer, keys: [privateKey.export({ format: 'jwk' })] });
}

async function metricOf(service: ServiceProcess | undefined, name: string): Promise<number> {
  try {
    const signal = AbortSignal.timeout(SCRAPE_TIMEOUT_MS);
    const response = await fetch(`${service?.adminUrl}/metrics`, { signal });
    return sumOf(await response.text(), name);
  } catch {
    return 0;
  }
}
