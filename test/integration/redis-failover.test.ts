/**
 * A real Sentinel trio and a real Cluster of six lose their primary under load, with TLS, a CA of
 * their own, a user and a password. Limiter, queues and notifications find the new one.
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { ServiceName, ServiceProcess } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { startFailoverLoad } from '../support/failover.ts';
import { send } from '../support/http.ts';
import {
  startRedisCluster,
  startRedisSentinel,
  type RedisMember,
  type RedisSet,
} from '../support/redis-sets.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { openWorld, type World } from '../support/world.ts';

/** How long a set may take to choose a new primary. */
const FAILS_OVER_WITHIN_MS = 60_000;
/** Ingest reads the keys every 15 s anyway: a notification is quicker. */
const BY_NOTIFICATION_MS = 10_000;

describe.each([
  ['Sentinel', startRedisSentinel],
  ['Cluster', startRedisCluster],
])('%s', (_name, startSet) => {
  let world: World;
  let set: RedisSet;
  let service: Readonly<Record<ServiceName, ServiceProcess>>;

  beforeAll(async () => {
    [world, set] = await Promise.all([
      openWorld({ controller: false }),
      startSet({ secured: true }),
    ]);
    const spawn = (name: ServiceName): Promise<ServiceProcess> =>
      world.spawn(name, { REDIS_URL: set.url, NODE_EXTRA_CA_CERTS: set.ca! });
    const [controller, ingest, processor] = await Promise.all([
      spawn('controller'),
      spawn('ingest'),
      spawn('processor'),
    ]);
    service = { controller, ingest, processor };
  });
  afterAll(async () => {
    await world.close();
    await set.stop();
  });

  const sum = (name: string, labels: Record<string, string>): Promise<number> =>
    world.metric(service.ingest, `partner_ingest_${name}`, labels);

  /** Each of the three uses of Redis works, through Redis itself. */
  async function expectAllUses(withinMs: number): Promise<void> {
    const startedAt = performance.now();
    const left = (): number => Math.max(1, withinMs - (performance.now() - startedAt));
    const before = await sum('hints_total', { result: 'sent' });
    await eventually(
      'hints to be sent',
      async () => (await sum('hints_total', { result: 'sent' })) > before + 5,
      left(),
    );
    await eventually(
      'the limiter to count in Redis',
      async () => (await sum('limiter_fallback', {})) === 0,
      left(),
    );
    const counted = await sum('limiter_decisions_total', { store: 'redis' });
    await eventually(
      'decisions made in Redis',
      async () => (await sum('limiter_decisions_total', { store: 'redis' })) > counted,
      left(),
    );
  }

  /**
   * What is told while a client looks for the new primary is lost, so that a key is read with all
   * others; then another one is tried.
   */
  async function expectNotifications(): Promise<void> {
    await eventually('a new key to be known before all keys are read again', async () => {
      const key = newApiKey();
      await world.writePartner({ partner: `partner-${Date.now()}`, keys: [key] });
      const known = async (): Promise<boolean> =>
        (await send(service.ingest.url, { key, body: '{}' })).status === 202;
      return eventually('this key', known, BY_NOTIFICATION_MS);
    });
  }

  test.each<[string, (primary: RedisMember) => Promise<void>]>([
    ['killed', (primary) => primary.signal('SIGKILL')],
    ['silent', (primary) => primary.signal('SIGSTOP')],
  ])('its primary is %s: work goes on, nobody is mailed twice', async (_how, harm) => {
    const load = startFailoverLoad(world, service);
    await expectAllUses(HANG_MS);
    await expectNotifications();
    // A busy machine may answer late.
    const old = await eventually('a primary', () => set.primary());
    let since = new Date();
    try {
      await harm(old);
      await eventually(
        'a new primary',
        async () => {
          const primary = await set.primary();
          return primary !== old && primary;
        },
        FAILS_OVER_WITHIN_MS,
      );
      since = new Date();
      await expectAllUses(HANG_MS);
      await eventually(
        'an application sent since to be completed',
        async () =>
          (await world.records({ state: 'completed', receivedAt: { $gte: since } })).length > 0,
        HANG_MS,
      );
      await expectNotifications();
    } finally {
      // The next failover needs every member.
      await old.restart();
    }
    const { answers, slowest, flips } = await load.settle();
    console.log(
      JSON.stringify(answers),
      `slowest ${slowest()} s, of those since ${slowest(since)} s, flips ${flips}`,
    );
    expect(Object.keys(answers)).toEqual(['202']);
    // A hint that a store took and lost is found by reconcile, within half a minute.
    expect(slowest(since)).toBeLessThan(HANG_MS / 1_000);
  });
});
