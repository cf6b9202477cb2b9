/** Faults of the service's processes. */
import type { ServiceName } from '../../deploy/local/processes.ts';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import type { Random } from '../support/random.ts';
import { LEAPS } from '../support/leaping-clock.ts';
import {
  BETWEEN_MS,
  KILL_WITHIN_MS,
  killStore,
  pickSlot,
  refill,
  STORES,
  type Fault,
  type Injector,
  type StoreName,
} from './fault.ts';
import { ACCEPT_TIMEOUT_MS, type ChaosWorld } from './world.ts';

/** Longer than a claim of 45 s, so that another processor takes over. */
const PROCESSOR_FREEZE_MS = 50_000;
/** Longer than 30 s, after which a withdrawal may come too late. */
const INGEST_FREEZE_MS = 35_000;
const SHARE_OF_DOUBLE_KILLS = 0.25;

/** Kills a process and starts another one. */
function killed(name: ServiceName): Injector {
  return {
    about: `SIGKILL to ${name} at a random instant, and a new one`,
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: async (world, random) => {
      await world.pause(random.below(KILL_WITHIN_MS));
      await world.kill(pickSlot(world, name, random));
    },
    heal: refill,
  };
}

const ALONE = 'alone';

async function renewControllers(
  world: ChaosWorld,
  environment: Readonly<Record<string, string>> = {},
): Promise<void> {
  for (const slot of world.slotsOf('controller')) {
    await world.drain(slot);
    await world.start(slot, environment);
  }
}

function drained(name: ServiceName): Injector {
  return {
    about: `SIGTERM to ${name} under load, and a new one`,
    rhythm: { onMs: 0, offMs: BETWEEN_MS },
    inject: (world, random) => world.drain(pickSlot(world, name, random)),
    heal: refill,
  };
}

/** Freezes a process; with `mongo` held, its writes are under way. */
function frozen(
  name: ServiceName,
  leastMs: number,
  options: { readonly holdMongo: boolean },
): Injector {
  return {
    about: `one ${name} is stopped (SIGSTOP) for long, and thawed`,
    leastMs,
    inject: async (world, random) => {
      if (options.holdMongo) {
        await world.mongo.signal('SIGSTOP');
        await world.pause(ACCEPT_TIMEOUT_MS / 2);
      }
      world.stop(pickSlot(world, name, random), 'SIGSTOP');
      if (options.holdMongo) await world.mongo.signal('SIGCONT');
    },
    heal: async (world) => {
      for (const slot of world.slotsOf(name)) world.stop(slot, 'SIGCONT');
    },
  };
}

/** Kills all processes of that name until the fault ends. */
function gone(name: ServiceName): Injector {
  return {
    about: `every ${name} is killed, and none follows`,
    inject: async (world) =>
      void (await Promise.all(world.slotsOf(name).map((slot) => world.kill(slot)))),
    heal: refill,
  };
}

export const processFaults = {
  'ingest-killed': killed('ingest'),
  'processor-killed': killed('processor'),
  'controller-killed': killed('controller'),
  'ingest-drained': drained('ingest'),
  'processor-drained': drained('processor'),
  'processors-gone': gone('processor'),
  'controllers-gone': gone('controller'),
  'account-alone': {
    about: 'an account has no request, and the controllers are new',
    inject: async (world) => {
      const _id = newId('acc', new Date());
      const keys = { emailNormalized: ALONE, ein: ALONE, requestId: ALONE };
      await world.db.collection<Account>(ACCOUNTS).insertOne({
        ...keys,
        _id,
        email: ALONE,
        businessName: ALONE,
        partnerId: ALONE,
        createdAt: new Date(),
      });
      await renewControllers(world);
    },
    heal: async (world) => {
      await world.db.collection<Account>(ACCOUNTS).deleteOne({ requestId: ALONE });
      await renewControllers(world);
    },
  },
  'probe-refused': {
    about: 'the standing probe comes with a live key',
    inject: (world) => renewControllers(world, { PROBE_KEY: world.keys.good }),
    heal: (world) => renewControllers(world),
  },
  'ingest-choked': {
    about: 'one ingest gets the CPU for 300 of every 700 ms',
    rhythm: { onMs: 400, offMs: 300 },
    inject: async (world) => world.stop(world.slotsOf('ingest')[0]!, 'SIGSTOP'),
    heal: async (world) => world.stop(world.slotsOf('ingest')[0]!, 'SIGCONT'),
  },
  'ingest-frozen': frozen('ingest', INGEST_FREEZE_MS, { holdMongo: true }),
  'processor-frozen': frozen('processor', PROCESSOR_FREEZE_MS, { holdMongo: false }),
  'clocks-leap': {
    about: 'the clocks of all processes leap by a minute, an hour and a month, to and fro',
    inject: async (world) => {
      for (const slot of world.slots) slot.process?.child.kill('SIGUSR2');
    },
    heal: async () => {},
    rhythm: { onMs: 0, offMs: 2 * BETWEEN_MS },
    times: LEAPS,
  },
} as const satisfies Readonly<Record<string, Injector>>;

/** Kills one or two random parts, `times` times. */
export function randomKills(times: number): Fault {
  const parts = ['ingest', 'processor', 'controller', ...STORES] as const;
  // Shuffled, so that every part is killed equally often.
  let deck: (typeof parts)[number][] = [];
  const deal = (random: Random): (typeof parts)[number] => {
    if (deck.length === 0) deck = random.shuffled(parts);
    return deck.pop()!;
  };
  const dead = new Set<StoreName>();
  return {
    name: 'random-kills',
    about: 'SIGKILL to random processes and stores at random instants',
    times,
    raises: [],
    allows: ['processed_after_500', 'second_mail', 'dead_letter'],
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
