/**
 * The world of a chaos run: own stores behind proxies, a mail catcher, and the service as real
 * child processes in slots.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { MongoClient, type Db } from 'mongodb';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startMailCatcher, type MailCatcher } from '../support/mail-catcher.ts';
import {
  startService,
  type ServiceName,
  type ServiceProcess,
} from '../../deploy/local/processes.ts';
import { startMongo, startRedis, type Store } from '../../deploy/local/stores.ts';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { startRedisCluster, startRedisSentinel, type RedisSet } from '../support/redis-sets.ts';
import { startReplicaSet, type Door, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { Facts } from './facts.ts';
import type { Target } from './load.ts';
import type { Random } from '../support/random.ts';

/** Short, so that a hung MongoDB leaves many writes in doubt. */
export const ACCEPT_TIMEOUT_MS = 700;
const DATABASE = 'chaos';
const SLOTS: readonly ServiceName[] = ['ingest', 'ingest', 'processor', 'processor', 'controller'];
/** More than any run sends; what the catcher drops is reported as a trouble. */
const MAILS_KEPT = 1_000_000;
/** Reading a process's metrics must not delay its death by much. */
const SCRAPE_TIMEOUT_MS = 300;
const WITHDRAWALS = 'partner_ingest_withdrawals_total';
const WITHDRAWAL_RESULTS = ['withdrawn', 'too_late', 'abandoned'] as const;

/** Redis with failover, by the name a fault asks for it. */
const startRedisSet = { sentinel: startRedisSentinel, cluster: startRedisCluster } as const;
export type RedisSetKind = keyof typeof startRedisSet;

/** A place for one process; the one in it may die and be followed by another. */
export interface Slot {
  readonly name: ServiceName;
  /** `ingest-1`, `processor-2`. */
  readonly label: string;
  /** Stays, as a pod's does: who scrapes it need not be told of each new process. */
  readonly adminPort: number;
  /** Its own way to MongoDB, so that it can be cut off alone. */
  readonly door: Door;
  /** Counts the processes that have been in it. */
  generation: number;
  /** Of the latest process. */
  environment: Readonly<Record<string, string>>;
  process: ServiceProcess | undefined;
  /** Set before we end the process ourselves: any other end is a trouble. */
  ending: boolean;
  ready: boolean;
}

export interface ChaosWorld {
  readonly mongo: Store;
  readonly redis: Store;
  readonly mongoProxy: TcpProxy;
  /** The processes find a replica set, behind it the proxy, and behind that the store. */
  readonly replicaSet: ReplicaSet;
  readonly redisProxy: TcpProxy;
  /** Those started so far. */
  readonly redisSets: Readonly<Partial<Record<RedisSetKind, RedisSet>>>;
  readonly mail: MailCatcher;
  readonly db: Db;
  readonly slots: readonly Slot[];
  readonly facts: Facts;
  /** The partner Secrets that the controller reads. */
  readonly keyFolder: string;
  readonly keys: Readonly<Record<'good' | 'inactive' | 'unknown', string>>;
  targets(): Target[];
  slotsOf(name: ServiceName): Slot[];
  /** Starts a process in an empty slot and waits until it is ready. */
  start(slot: Slot, more?: Readonly<Record<string, string>>): Promise<void>;
  kill(slot: Slot): Promise<void>;
  /** SIGTERM; the exit code is noted when it is not 0. */
  drain(slot: Slot): Promise<void>;
  signal(slot: Slot, signal: 'SIGSTOP' | 'SIGCONT'): void;
  emptyRedis(): Promise<void>;
  /**
   * Replaces each process, one after the other, by one on such a Redis; undefined is the single
   * server.
   */
  useRedis(kind: RedisSetKind | undefined): Promise<void>;
  /** The duration of a fault; ends at once when the run is given up. */
  pause(milliseconds: number): Promise<void>;
  /** Sum of a metric over the ingest processes that live; those that do not answer count as 0. */
  ingestMetric(name: string, labels?: string): Promise<number>;
  /**
   * partner_ingest_withdrawals_total by result, also of ingest processes that have ended, as far as
   * could be read.
   */
  withdrawals(): Promise<Record<string, number>>;
  close(): Promise<void>;
}

export interface ChaosWorldOptions {
  /** Logs of the processes and partner keys. */
  readonly folder: string;
  readonly random: Random;
  /** Aborts the run. */
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
}

/**
 * Opens everything and waits until it is ready; whatever was opened is closed again when that
 * fails.
 */
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
): Promise<ChaosWorld> {
  const { folder, random, log } = options;
  await mkdir(folder, { recursive: true });
  const [mongo, redis] = await openStores(opened, log);
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
  const mail = await startMailCatcher({ keep: MAILS_KEPT });
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
  const environment = {
    MONGODB_DATABASE: DATABASE,
    REDIS_URL: redisProxy.url,
    // Of a Redis with failover.
    NODE_EXTRA_CA_CERTS: '',
    ACCEPT_TIMEOUT_MS: String(ACCEPT_TIMEOUT_MS),
    // All load comes from one address.
    RATE_LIMIT_MAX: '1000000000',
    SMTP_URL: mail.smtpUrl,
    MAIL_FROM: 'accounts@partner-ingest.example',
    LOGIN_URL: 'https://login.partner-ingest.example/',
    LINK_SECRET: 'a-secret-for-chaos-of-32-characters-or-more',
    PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
  };
  const facts = new Facts(mail);
  const slots: Slot[] = [];
  for (const name of SLOTS) {
    const label = `${name}-${slots.filter((other) => other.name === name).length + 1}`;
    const adminPort = await freePort();
    const door = await replicaSet.door();
    slots.push({
      name,
      label,
      adminPort,
      door,
      generation: 0,
      environment: {},
      process: undefined,
      ending: false,
      ready: false,
    });
  }

  /** What an ingest counted goes with it; read before its end, as far as it still answers. */
  const remember = async (slot: Slot): Promise<void> => {
    if (slot.name !== 'ingest' || slot.process === undefined) return;
    for (const result of WITHDRAWAL_RESULTS) {
      const count = await metricOf(slot.process, WITHDRAWALS, withResult(result));
      facts.withdrawals.set(result, (facts.withdrawals.get(result) ?? 0) + count);
    }
  };
  const world: ChaosWorld = {
    mongo,
    redis,
    mongoProxy,
    replicaSet,
    redisProxy,
    redisSets,
    mail,
    db: client.db(DATABASE),
    slots,
    facts,
    keyFolder,
    keys,
    targets: () =>
      world
        .slotsOf('ingest')
        .flatMap((slot) =>
          slot.process === undefined || !slot.ready
            ? []
            : [{ instance: instanceOf(slot), url: slot.process.url }],
        ),
    slotsOf: (name) => slots.filter((slot) => slot.name === name),
    async start(slot, more = {}) {
      slot.generation += 1;
      slot.ending = false;
      const instance = instanceOf(slot);
      const ownPort = {
        ...environment,
        ...more,
        MONGODB_URI: slot.door.url,
        ADMIN_PORT: String(slot.adminPort),
      };
      slot.environment = ownPort;
      const started = await startService(slot.name, ownPort, {
        logFile: join(folder, `${slot.label}.log`),
      });
      slot.process = started;
      void started.exited.then(({ code, signal }) => {
        if (slot.process === started) slot.process = undefined;
        if (!slot.ending)
          facts.trouble(
            `${instance} ended by itself (${signal ?? code}); see ${folder}/${slot.label}.log`,
          );
      });
      await started.ready();
      slot.ready = true;
    },
    async kill(slot) {
      const dying = slot.process;
      if (dying === undefined) return;
      [slot.ending, slot.ready] = [true, false];
      await remember(slot);
      facts.killed(instanceOf(slot), slot.name);
      dying.child.kill('SIGKILL');
      await dying.exited;
    },
    async drain(slot) {
      const leaving = slot.process;
      if (leaving === undefined) return;
      slot.ending = true;
      await remember(slot);
      const code = await leaving.stop();
      slot.ready = false;
      if (code !== 0) facts.trouble(`${instanceOf(slot)} ended with ${code} after SIGTERM`);
    },
    signal(slot, signal) {
      if (slot.name === 'processor') facts.processorStopped();
      slot.process?.child.kill(signal);
    },
    pause: (milliseconds) => pause(milliseconds, options.signal),
    emptyRedis: async () => void (await direct.flushall()),
    async useRedis(kind) {
      if (kind !== undefined) redisSets[kind] ??= await startRedisSet[kind]();
      const url = kind === undefined ? redisProxy.url : redisSets[kind]!.url;
      if (url === environment.REDIS_URL) return;
      environment.REDIS_URL = url;
      environment.NODE_EXTRA_CA_CERTS = kind === undefined ? '' : redisSets[kind]!.ca;
      for (const slot of slots) {
        // As its endpoint is withdrawn.
        slot.ready = false;
        await world.drain(slot);
        await world.start(slot);
      }
    },
    async withdrawals() {
      const counted = await Promise.all(
        WITHDRAWAL_RESULTS.map(
          async (result) =>
            [
              result,
              (facts.withdrawals.get(result) ?? 0) +
                (await world.ingestMetric(WITHDRAWALS, withResult(result))),
            ] as const,
        ),
      );
      return Object.fromEntries(counted);
    },
    async ingestMetric(name, labels = '') {
      const values = await Promise.all(
        world
          .slotsOf('ingest')
          .map(async ({ process: ingest }) =>
            ingest === undefined ? 0 : metricOf(ingest, name, labels),
          ),
      );
      return values.reduce((sum, value) => sum + value, 0);
    },
    close,
  };
  opened.push(async () => {
    await Promise.all(
      slots.map(async (slot) => {
        slot.process?.child.kill('SIGCONT');
        await world.drain(slot);
      }),
    );
  });
  log(`stores: ${mongo.description}, ${redis.description}`);
  await Promise.all(slots.map((slot) => world.start(slot)));
  return world;
}

async function openStores(
  opened: (() => Promise<unknown>)[],
  log: (line: string) => void,
): Promise<[Store, Store]> {
  const keep = (store: Store): Store => {
    opened.push(() => store.stop());
    if (store.kind === 'environment') {
      throw new Error(
        `chaos kills its stores, and ${store.description} is not ours to kill: unset MONGODB_URI and REDIS_URL, ` +
          'and stores are started here (Docker, PATH or Debian packages)',
      );
    }
    return store;
  };
  const started = await Promise.allSettled([
    startMongo({ url: process.env['MONGODB_URI'], log }).then(keep),
    startRedis({ url: process.env['REDIS_URL'], log }).then(keep),
  ]);
  const [mongo, redis] = started;
  if (mongo.status === 'rejected') throw mongo.reason;
  if (redis.status === 'rejected') throw redis.reason;
  return [mongo.value, redis.value];
}

function withResult(result: string): string {
  return `result="${result}"`;
}

function instanceOf(slot: Slot): string {
  return `${slot.label}.${slot.generation}`;
}

async function metricOf(service: ServiceProcess, name: string, labels: string): Promise<number> {
  try {
    const response = await fetch(`${service.adminUrl}/metrics`, {
      signal: AbortSignal.timeout(SCRAPE_TIMEOUT_MS),
    });
    return (await response.text())
      .split('\n')
      .filter((line) => line.startsWith(`${name}{`) && line.includes(labels))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  } catch {
    return 0;
  }
}
