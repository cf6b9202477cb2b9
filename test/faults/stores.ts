/** Faults of MongoDB and Redis. */
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { QUEUE } from '../../internal/queue/job.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { queuePrefixOf } from '../support/installation-id.ts';
import type { RedisMember } from '../support/redis-sets.ts';
import { eventually } from '../support/wait.ts';
import {
  BETWEEN_MS,
  KILL_WITHIN_MS,
  killStore,
  pickSlot,
  refill,
  STORES,
  type Injector,
} from './fault.ts';
import { ACCEPT_TIMEOUT_MS, type ChaosWorld, type RedisSetKind } from './world.ts';

const REDIS_DELAY_MS = [100, 300] as const;
/** The sum of both ways is near the accept time-out, so only some answers are in time. */
const MONGO_DELAY_MS = [ACCEPT_TIMEOUT_MS / 10, (ACCEPT_TIMEOUT_MS * 2) / 3] as const;
/** Every write sent before the hang is answered 500. */
const MONGO_HUNG_MS = ACCEPT_TIMEOUT_MS * 2;
/** As long as an election after the primary died. */
const ELECTION_MS = 12_000;
/** Longer than 30 s, after which reconcile queues a record. */
const STALL_MS = 40_000;
/** Shorter than 15 s, so that a withdrawal still comes first. */
const PARTITION_MS = 8_000;
/** Longer than the time between two measurements of the database's clock. */
const LEAPT_MS = 12_000;
/** Longer than a worker waits, shorter than its claim. */
const INSERT_HANGS_MS = 30_000;
/** The second failover leads to a former primary. */
const FAILOVERS = 2;

const nothing = async (): Promise<void> => undefined;

/** Kills the primary; ends once another member is primary and the old one is back. */
function failedOver(kind: RedisSetKind): Injector {
  let old: RedisMember | undefined;
  let key = '';
  return {
    about: `the primary of a Redis ${kind} is killed, a replica takes over, the old primary comes back as a replica`,
    redis: kind,
    times: FAILOVERS,
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: async (world) => {
      key = `${await queuePrefixOf(world.db)}:`;
      old = await eventually('the primary', async () => world.redisSets[kind]?.primary(key));
      world.facts.killed('redis', 'redis');
      await old?.signal('SIGKILL');
    },
    heal: async (world) => {
      await eventually(
        'another primary',
        async () => (await world.redisSets[kind]?.primary(key)) !== old,
      );
    },
    tidy: async () => {
      await old?.restart();
      await eventually('the old primary to be a replica', async () => {
        const role = await old?.client.info('replication');
        return role?.includes('role:slave') === true && role.includes('master_link_status:up');
      });
    },
  };
}

async function withQueue(
  world: ChaosWorld,
  use: (queue: Queue) => Promise<unknown>,
): Promise<void> {
  const { hostname, port } = new URL(world.redis.url);
  const queue = new Queue('applications', {
    connection: { host: hostname, port: Number(port) },
    prefix: await queuePrefixOf(world.db),
  });
  try {
    await use(queue);
  } finally {
    await queue.close();
  }
}

/** Some jobs get through, so that reconcile can rescue the others. */
const LOSE_EVERY_MS = 8;
const LOSE_WAIT_SECONDS = 1;

function losingQueue(): Injector {
  let stop = new AbortController();
  let working: Promise<unknown> = Promise.resolve();
  return {
    about: 'Redis forgets waiting jobs all the time, as if it evicted them, and is well otherwise',
    inject: async (world) => {
      stop = new AbortController();
      // Removes jobs before the workers look, which they do after a notification.
      working = lose(world, stop.signal);
    },
    heal: async () => {
      stop.abort();
      await working;
    },
  };
}

async function lose(world: ChaosWorld, signal: AbortSignal): Promise<void> {
  const prefix = await queuePrefixOf(world.db);
  const redis = new Redis(world.redis.url);
  while (!signal.aborted) {
    await redis.blpop(`${prefix}:${QUEUE}:wait`, LOSE_WAIT_SECONDS);
    await pause(LOSE_EVERY_MS, signal);
  }
  redis.disconnect();
}

export const storeFaults = {
  'redis-killed': {
    about: 'Redis is killed and started again',
    inject: (world) => killStore(world, 'redis'),
    heal: (world) => world.redis.restart(),
  },
  'redis-hung': {
    about: 'Redis is stopped (SIGSTOP) and goes on',
    inject: (world) => world.redis.signal('SIGSTOP'),
    heal: (world) => world.redis.signal('SIGCONT'),
  },
  'redis-slow': {
    about: `everything to and from Redis takes ${REDIS_DELAY_MS.join(' to ')} ms`,
    inject: async (world) => world.redisProxy.delay(...REDIS_DELAY_MS),
    heal: async (world) => world.redisProxy.delay(0, 0),
  },
  'redis-emptied': {
    about: 'FLUSHALL, several times',
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: (world) => world.emptyRedis(),
    heal: nothing,
  },
  'redis-loses-queue': losingQueue(),
  'queue-paused': {
    about: 'somebody pauses the queue in Redis: workers are well and take nothing',
    inject: (world) => withQueue(world, (queue) => queue.pause()),
    heal: (world) => withQueue(world, (queue) => queue.resume()),
  },
  'mongodb-killed': {
    about: 'MongoDB is killed and started again',
    inject: (world) => killStore(world, 'mongodb'),
    heal: (world) => world.mongo.restart(),
  },
  'power-cut': {
    about:
      'the machines of MongoDB and Redis lose their power at a random instant: what was not synced is gone',
    onPowerDisks: true,
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: async (world, random) => {
      await world.pause(random.below(KILL_WITHIN_MS));
      await Promise.all(world.disks.map((disk) => disk.cut()));
      await Promise.all(STORES.map((name) => killStore(world, name)));
    },
    heal: async (world) => {
      await Promise.all(world.disks.map((disk) => disk.restore()));
      await Promise.all([world.mongo.restart(), world.redis.restart()]);
    },
  },
  'mongodb-hung': {
    about:
      'MongoDB is stopped (SIGSTOP) for longer than the accept time-out and goes on, so that writes land late',
    rhythm: { onMs: MONGO_HUNG_MS, offMs: BETWEEN_MS * 2 },
    inject: (world) => world.mongo.signal('SIGSTOP'),
    heal: (world) => world.mongo.signal('SIGCONT'),
  },
  'mongodb-slow': {
    about:
      'everything to and from MongoDB takes so long that answers are around the accept time-out',
    inject: async (world) => world.mongoProxy.delay(...MONGO_DELAY_MS),
    heal: async (world) => world.mongoProxy.delay(0, 0),
  },
  'mongodb-cut': {
    about: 'the connections to MongoDB are reset, what was sent still arrives',
    rhythm: { onMs: 0, offMs: BETWEEN_MS / 2 },
    inject: async (world) => world.mongoProxy.cut(),
    heal: nothing,
  },
  'mongodb-election': {
    about: 'the primary steps down with its connections open, and the set has none for 12 s',
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: (world) => world.replicaSet.stepDown(() => world.pause(ELECTION_MS)),
    heal: nothing,
  },
  'mongodb-majority-stalled': {
    about: 'writes apply on the primary, but no majority acknowledges them',
    leastMs: STALL_MS,
    inject: async (world) => world.replicaSet.stallMajority(),
    heal: async (world) => world.replicaSet.resumeMajority(),
  },
  'mongodb-rolled-back': {
    about: 'another primary is elected that has nothing of what no majority acknowledged',
    rhythm: { onMs: MONGO_HUNG_MS * 2, offMs: BETWEEN_MS * 2 },
    inject: async (world) => world.replicaSet.stallMajority(),
    heal: (world) => world.replicaSet.rollBack(),
  },
  'mongodb-partitioned': {
    about: 'one ingest alone is cut off from the whole replica set',
    rhythm: { onMs: PARTITION_MS, offMs: BETWEEN_MS * 2 },
    inject: async (world, random) => pickSlot(world, 'ingest', random).door.part(),
    heal: async (world) => world.slots.forEach(({ door }) => door.join()),
  },
  'mongodb-clock-leaps': {
    about: "the set's clock leaps a minute ahead and back, as in failovers to other machines",
    rhythm: { onMs: LEAPT_MS, offMs: LEAPT_MS },
    inject: async (world) => world.replicaSet.leap(60_000),
    heal: async (world) => world.replicaSet.leap(0),
  },
  'mongodb-insert-hangs': {
    about: 'inserts of accounts hang for 30 s and land after their workers have given up',
    leastMs: STALL_MS,
    rhythm: { onMs: ACCEPT_TIMEOUT_MS, offMs: BETWEEN_MS * 10 },
    inject: async (world) => world.replicaSet.delayInserts(ACCOUNTS, INSERT_HANGS_MS),
    heal: async (world) => world.replicaSet.delayInserts(ACCOUNTS, 0),
  },
  'mongodb-hiccups': {
    about: 'MongoDB hangs for 1.4 s every 6 s: some requests of each ten seconds fail',
    rhythm: { onMs: 1_400, offMs: 4_600 },
    inject: (world) => world.mongo.signal('SIGSTOP'),
    heal: (world) => world.mongo.signal('SIGCONT'),
  },
  'mongodb-hung-ingest-killed': {
    about:
      'an ingest is killed while MongoDB hangs, so that it cannot withdraw what it answered 500: the documented window',
    rhythm: { onMs: 0, offMs: BETWEEN_MS * 2 },
    inject: async (world, random) => {
      await world.mongo.signal('SIGSTOP');
      await world.pause(MONGO_HUNG_MS);
      await world.kill(pickSlot(world, 'ingest', random));
    },
    heal: async (world) => {
      await world.mongo.signal('SIGCONT');
      await refill(world);
    },
  },
  'mongodb-role-lost': {
    about: 'the user of MONGODB_URI may not write accounts',
    inject: async (world) =>
      world.replicaSet.refuse('insert', { code: 13, codeName: 'Unauthorized' }, { only: ACCOUNTS }),
    heal: async (world) => world.replicaSet.refuse('insert'),
  },
  'backlog-refused': {
    about: 'the database does not count the records for the controller',
    inject: async (world) =>
      world.replicaSet.refuse(
        'aggregate',
        { code: 50, codeName: 'MaxTimeMSExpired' },
        { only: SUBMISSIONS },
      ),
    heal: async (world) => world.replicaSet.refuse('aggregate'),
  },
  'redis-sentinel-failover': failedOver('sentinel'),
  'redis-cluster-failover': failedOver('cluster'),
} as const satisfies Readonly<Record<string, Injector>>;
