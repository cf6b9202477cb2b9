/** The named faults: how each part of the system is taken away, and how it comes back. */
import type { FaultChoice, SmtpFault } from '../support/mail-catcher.ts';
import type { ServiceName } from '../../deploy/local/processes.ts';
import type { RedisMember } from '../support/redis-sets.ts';
import { eventually } from '../support/wait.ts';
import type { Random } from './random.ts';
import { ACCEPT_TIMEOUT_MS, type ChaosWorld, type RedisSetKind, type Slot } from './world.ts';

export interface Fault {
  readonly name: string;
  readonly about: string;
  inject(world: ChaosWorld, random: Random): Promise<void>;
  /** Undoes it; resolves once the part is there again. */
  heal(world: ChaosWorld): Promise<void>;
  /** Restores what the service does not wait for. */
  tidy?(world: ChaosWorld): Promise<void>;
  /** The processes use such a Redis meanwhile, instead of a single server. */
  readonly redis?: RedisSetKind;
  /**
   * Injected again and again: held for `onMs`, healed for `offMs`. Without it once, for the whole
   * time.
   */
  readonly rhythm?: { readonly onMs: number; readonly offMs: number };
  /** Lasts at least this long, whatever is asked for: shorter would show nothing. */
  readonly leastMs?: number;
  /** Ends after this many injections instead of by time. */
  readonly times?: number;
}

const REDIS_DELAY_MS = [100, 300] as const;
/**
 * Each way, so that the sum is around the accept time-out, so that some answers are in time and
 * some are not.
 */
const MONGO_DELAY_MS = [ACCEPT_TIMEOUT_MS / 10, (ACCEPT_TIMEOUT_MS * 2) / 3] as const;
/** Long enough that every write sent before it is answered 500. */
const MONGO_HUNG_MS = ACCEPT_TIMEOUT_MS * 2;
/** Longer than the 45 s of a claim, so that others take over what the frozen one holds. */
const PROCESSOR_FREEZE_MS = 50_000;
/**
 * Longer than the 15 s to the first due date and the 15 s of grace: too long for a withdrawal to
 * come first.
 */
const INGEST_FREEZE_MS = 35_000;
/** As an election takes where the old primary does not help. */
const ELECTION_MS = 12_000;
/** Longer than the 30 s after which reconcile queues what it does not know. */
const STALL_MS = 40_000;
/** Shorter than the 15 s to the first due date: within it a withdrawal still comes first. */
const PARTITION_MS = 8_000;
const BETWEEN_MS = 700;
/** The second one comes to a member that was a primary before. */
const FAILOVERS = 2;
const KILL_WITHIN_MS = 1_200;
const SHARE_OF_DOUBLE_KILLS = 0.25;

const nothing = async (): Promise<void> => undefined;

function smtpFault(
  name: string,
  about: string,
  choose: (recipient: string, random: Random) => SmtpFault | undefined,
): Fault {
  return {
    name,
    about,
    inject: async (world, random) => {
      const chosen = new Map<string, SmtpFault | undefined>();
      const choice: FaultChoice = ({ rcptTo }) => {
        const recipient = rcptTo.at(-1);
        if (recipient === undefined) return undefined;
        // The catcher asks at each phase of a session, and has to get the same answer.
        if (!chosen.has(recipient)) chosen.set(recipient, choose(recipient, random));
        const fault = chosen.get(recipient);
        return fault === undefined ? undefined : world.facts.tampered(recipient, fault);
      };
      world.mail.setFault(choice);
    },
    heal: async (world) => {
      world.mail.setFault(undefined);
      // Sessions that hang would do so for ten minutes.
      world.facts.mailStopped();
      await world.mail.stopListening();
      await world.mail.listenAgain();
    },
  };
}

/** Kills one of the processes of that name and starts another in its place. */
function killed(name: ServiceName): Fault {
  return {
    name: `${name}-killed`,
    about: `SIGKILL to ${name} at a random instant, and a new one`,
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: async (world, random) => {
      await world.pause(random.below(KILL_WITHIN_MS));
      await world.kill(pickSlot(world, name, random));
    },
    heal: refill,
  };
}

function drained(name: ServiceName): Fault {
  return {
    name: `${name}-drained`,
    about: `SIGTERM to ${name} under load, and a new one`,
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: (world, random) => world.drain(pickSlot(world, name, random)),
    heal: refill,
  };
}

/**
 * Freezes one process of that name; with writes of it under way where MongoDB is held while it
 * happens.
 */
function frozen(
  name: ServiceName,
  leastMs: number,
  options: { readonly holdMongo: boolean },
): Fault {
  return {
    name: `${name}-frozen`,
    about: `one ${name} is stopped (SIGSTOP) for long, and thawed`,
    leastMs,
    inject: async (world, random) => {
      if (options.holdMongo) {
        await world.mongo.signal('SIGSTOP');
        await world.pause(ACCEPT_TIMEOUT_MS / 2);
      }
      world.signal(pickSlot(world, name, random), 'SIGSTOP');
      if (options.holdMongo) await world.mongo.signal('SIGCONT');
    },
    heal: async (world) => {
      for (const slot of world.slotsOf(name)) world.signal(slot, 'SIGCONT');
    },
  };
}

/**
 * Kills the primary of a Redis with failover. Healed once another member is the primary; then the
 * old one comes back.
 */
function failedOver(kind: RedisSetKind): Fault {
  let old: RedisMember | undefined;
  return {
    name: `redis-${kind}-failover`,
    about: `the primary of a Redis ${kind} is killed, a replica takes over, the old primary comes back as a replica`,
    redis: kind,
    times: FAILOVERS,
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: async (world) => {
      old = await eventually('the primary', async () => world.redisSets[kind]?.primary());
      world.facts.killed('redis', 'redis');
      await old?.signal('SIGKILL');
    },
    heal: async (world) => {
      await eventually(
        'another primary',
        async () => (await world.redisSets[kind]?.primary()) !== old,
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

function pickSlot(world: ChaosWorld, name: ServiceName, random: Random): Slot {
  const [first, ...others] = world.slotsOf(name);
  if (first === undefined) throw new Error(`no slot for ${name}`);
  return random.pick([first, ...others]);
}

async function refill(world: ChaosWorld): Promise<void> {
  await Promise.all(
    world.slots.filter((slot) => slot.process === undefined).map((slot) => world.start(slot)),
  );
}

const STORES = ['mongodb', 'redis'] as const;

async function killStore(world: ChaosWorld, name: (typeof STORES)[number]): Promise<void> {
  world.facts.killed(name, name);
  await (name === 'mongodb' ? world.mongo : world.redis).signal('SIGKILL');
}

export const faults: readonly Fault[] = [
  {
    name: 'redis-killed',
    about: 'Redis is killed and started again',
    inject: (world) => killStore(world, 'redis'),
    heal: (world) => world.redis.restart(),
  },
  {
    name: 'redis-emptied',
    about: 'FLUSHALL, several times',
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: (world) => world.emptyRedis(),
    heal: nothing,
  },
  {
    name: 'redis-hung',
    about: 'Redis is stopped (SIGSTOP) and goes on',
    inject: (world) => world.redis.signal('SIGSTOP'),
    heal: (world) => world.redis.signal('SIGCONT'),
  },
  {
    name: 'redis-slow',
    about: `everything to and from Redis takes ${REDIS_DELAY_MS.join(' to ')} ms`,
    inject: async (world) => world.redisProxy.delay(...REDIS_DELAY_MS),
    heal: async (world) => world.redisProxy.delay(0, 0),
  },
  {
    name: 'mongodb-killed',
    about: 'MongoDB is killed and started again',
    inject: (world) => killStore(world, 'mongodb'),
    heal: (world) => world.mongo.restart(),
  },
  {
    name: 'mongodb-hung',
    about:
      'MongoDB is stopped (SIGSTOP) for longer than the accept time-out and goes on, so that writes land late',
    rhythm: { onMs: MONGO_HUNG_MS, offMs: BETWEEN_MS * 2 },
    inject: (world) => world.mongo.signal('SIGSTOP'),
    heal: (world) => world.mongo.signal('SIGCONT'),
  },
  {
    name: 'mongodb-hung-ingest-killed',
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
  {
    name: 'mongodb-slow',
    about:
      'everything to and from MongoDB takes so long that answers are around the accept time-out',
    inject: async (world) => world.mongoProxy.delay(...MONGO_DELAY_MS),
    heal: async (world) => world.mongoProxy.delay(0, 0),
  },
  {
    name: 'mongodb-cut',
    about: 'the connections to MongoDB are reset, what was sent still arrives',
    rhythm: { onMs: 0, offMs: BETWEEN_MS / 2 },
    inject: async (world) => world.mongoProxy.cut(),
    heal: nothing,
  },
  {
    name: 'mongodb-election',
    about: 'the primary steps down with its connections open, and the set has none for 12 s',
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: (world) => world.replicaSet.stepDown(() => world.pause(ELECTION_MS)),
    heal: nothing,
  },
  {
    name: 'mongodb-majority-stalled',
    about: 'writes apply on the primary, but no majority acknowledges them',
    leastMs: STALL_MS,
    inject: async (world) => world.replicaSet.stallMajority(),
    heal: async (world) => world.replicaSet.resumeMajority(),
  },
  {
    name: 'mongodb-rolled-back',
    about: 'another primary is elected that has nothing of what no majority acknowledged',
    rhythm: { onMs: MONGO_HUNG_MS * 2, offMs: BETWEEN_MS * 2 },
    inject: async (world) => world.replicaSet.stallMajority(),
    heal: (world) => world.replicaSet.rollBack(),
  },
  {
    name: 'mongodb-partitioned',
    about: 'one ingest alone is cut off from the whole replica set',
    rhythm: { onMs: PARTITION_MS, offMs: BETWEEN_MS * 2 },
    inject: async (world, random) => pickSlot(world, 'ingest', random).door.part(),
    heal: async (world) => world.slots.forEach(({ door }) => door.join()),
  },
  {
    name: 'smtp-stopped',
    about: 'the mail server refuses connections',
    inject: async (world) => {
      world.facts.mailStopped();
      await world.mail.stopListening();
    },
    heal: (world) => world.mail.listenAgain(),
  },
  smtpFault(
    'smtp-hanging',
    'the mail server stops answering, at RCPT or after the content',
    (_, random) => ({
      at: random.pick(['rcpt', 'data-command', 'data']),
      hang: true,
    }),
  ),
  smtpFault('smtp-451', 'the mail server says "later"', () => ({
    at: 'rcpt',
    answer: { code: 451, message: '4.7.1 try again later' },
  })),
  smtpFault('smtp-550', 'the mail server refuses every third recipient for good', (_, random) =>
    random.below(3) === 0
      ? { at: 'rcpt', answer: { code: 550, message: '5.1.1 no such user' } }
      : undefined,
  ),
  smtpFault(
    'smtp-cut-before-store',
    'the connection ends after the content, the mail is not kept',
    () => ({
      at: 'data',
      cut: 'before-store',
    }),
  ),
  smtpFault(
    'smtp-cut-after-store',
    'the connection ends after the content, the mail is kept',
    () => ({
      at: 'data',
      cut: 'after-store',
    }),
  ),
  killed('ingest'),
  killed('processor'),
  killed('controller'),
  drained('ingest'),
  drained('processor'),
  frozen('ingest', INGEST_FREEZE_MS, { holdMongo: true }),
  frozen('processor', PROCESSOR_FREEZE_MS, { holdMongo: false }),
  failedOver('sentinel'),
  failedOver('cluster'),
];

/**
 * SIGKILL to a random part, sometimes two at once, `times` times; then what is missing is started
 * again.
 */
export function randomKills(times: number): Fault {
  const parts = ['ingest', 'processor', 'controller', ...STORES] as const;
  // A shuffled deck, so that a run kills every part equally often.
  let deck: (typeof parts)[number][] = [];
  const deal = (random: Random): (typeof parts)[number] => {
    if (deck.length === 0) deck = random.shuffled(parts);
    return deck.pop()!;
  };
  const dead = new Set<(typeof STORES)[number]>();
  return {
    name: 'random-kills',
    about: 'SIGKILL to random processes and stores at random instants',
    times,
    rhythm: { onMs: 0, offMs: 0 },
    inject: async (world, random) => {
      await world.pause(random.below(KILL_WITHIN_MS));
      const count = random.next() < SHARE_OF_DOUBLE_KILLS ? 2 : 1;
      const victims = new Set(Array.from({ length: count }, () => deal(random)));
      await Promise.all(
        [...victims].map(async (victim) => {
          if (victim !== 'mongodb' && victim !== 'redis')
            return world.kill(pickSlot(world, victim, random));
          dead.add(victim);
          await killStore(world, victim);
        }),
      );
    },
    heal: async (world) => {
      await Promise.all(
        [...dead].map((name) => (name === 'mongodb' ? world.mongo : world.redis).restart()),
      );
      dead.clear();
      await refill(world);
    },
  };
}
