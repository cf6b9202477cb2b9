/** The Kubernetes API killed, hung, restarted without its memory, and cut off every second: keys stay in force, and it heals. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { describeWithApi, describeWithOwnApi, startOwnApiServer, type OwnApiServer } from '../support/cluster.ts';
import { IN_FORCE_WITHIN_MS, openKeysWorld, type KeysWorld } from '../support/keys-world.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { eventually } from '../support/wait.ts';
import type { InProcess } from '../support/world.ts';

/** Leadership is taken up again and everything listed anew: 12 s for the Lease, and back-off. */
const BACK_WITHIN_MS = 45_000;

const watches = (own: KeysWorld, controller: InProcess, result: string): Promise<number> =>
  own.world.metric(controller, 'partner_ingest_secret_watches_total', { result });

describeWithOwnApi('an API server of our own', () => {
  let own: KeysWorld;
  let api: OwnApiServer;
  let proxy: TcpProxy;
  let controller: InProcess;
  const [kept, inactive] = [newApiKey(), newApiKey()];

  beforeAll(async () => {
    own = await openKeysWorld();
    api = await startOwnApiServer(own.cluster);
    proxy = await startTcpProxy(api.url);
    await own.apply('kept', { partner: 'kept', keys: [kept] });
    await own.apply('off', { partner: 'off', keys: [inactive], status: 'inactive' });
    controller = await own.world.start('controller', await own.settings(proxy.url));
    await own.becomes(kept, 202);
  }, 180_000);
  afterAll(async () => {
    await own.close();
    await proxy.close();
    await api.kill();
  }, 60_000);

  const keysStay = async (): Promise<void> => {
    expect([await own.status(kept), await own.status(inactive)]).toEqual([202, 403]);
  };
  /** A new key, through the other API server, which nobody harms: seen once ours is back. */
  const addMeanwhile = async (): Promise<string> => {
    const key = newApiKey();
    await own.apply('meanwhile', { partner: 'meanwhile', keys: [key] });
    return key;
  };

  test('killed: keys stay in force, the pod says what is wrong, and everything missed is caught up with', async () => {
    await api.kill();
    const added = await addMeanwhile();
    await keysStay();
    await eventually('unreadiness', async () => !(await fetch(`${controller.adminUrl}/readyz`)).ok, BACK_WITHIN_MS);
    await keysStay();
    await api.start();
    await own.becomes(added, 202, BACK_WITHIN_MS);
    await own.remove('meanwhile');
    await own.becomes(added, 401);
    await keysStay();
    expect((await fetch(`${controller.adminUrl}/readyz`)).status).toBe(200);
  }, 150_000);

  test('hung: noticed though no connection breaks, and healed when it goes on', async () => {
    api.signal('SIGSTOP');
    const added = await addMeanwhile();
    await eventually(
      'the leader to step down',
      async () => (await own.world.metric(controller, 'partner_ingest_leader')) === 0,
      BACK_WITHIN_MS,
    );
    await keysStay();
    api.signal('SIGCONT');
    await own.becomes(added, 202, BACK_WITHIN_MS);
    await own.remove('meanwhile');
    await own.becomes(added, 401);
    await keysStay();
  }, 150_000);

  test('restarted without the versions we watch from: a 410 inside the stream is a list from scratch', async () => {
    await controller.close();
    const child = await own.world.spawn('controller', await own.settings(proxy.url));
    const { transitions } = await own.lease();
    // Frozen, so that it asks again only when the server is back: its watch is then older than the server's memory.
    child.child.kill('SIGSTOP');
    await api.kill();
    for (let change = 0; change < 3; change += 1) {
      await own.apply('off', { partner: 'off', keys: [inactive], status: 'inactive' });
    }
    await own.remove('kept');
    const added = await addMeanwhile();
    await api.start();
    child.child.kill('SIGCONT');
    await own.becomes(added, 202, BACK_WITHIN_MS);
    // A deletion that no event will ever tell.
    await own.becomes(kept, 401, BACK_WITHIN_MS);
    expect(await own.status(inactive)).toBe(403);
    expect(await own.world.metric(child, 'partner_ingest_secret_watches_total', { result: 'expired' })).toBe(1);
    expect((await own.lease()).transitions).toBe(transitions);
    await child.stop();
  }, 150_000);
});

describeWithApi('a bad way to the API server', () => {
  let own: KeysWorld;
  let proxy: TcpProxy;
  let controller: InProcess;

  beforeAll(async () => {
    own = await openKeysWorld();
    proxy = await startTcpProxy(own.cluster.server);
    controller = await own.world.start('controller', await own.settings(proxy.url));
  }, 120_000);
  afterAll(async () => {
    await own.close();
    await proxy.close();
  }, 60_000);

  test('every connection cut each second: changes go on coming into force, and nobody else takes over', async () => {
    const { transitions } = await own.lease();
    const cutting = setInterval(() => proxy.cut(), 1_000);
    try {
      const tookMs: number[] = [];
      for (let round = 0; round < 25; round += 1) {
        const key = newApiKey();
        await own.apply('cut', { partner: 'cut', keys: [key] });
        tookMs.push(await own.becomes(key, 202));
        await own.remove('cut');
        tookMs.push(await own.becomes(key, 401));
      }
      const sorted = tookMs.toSorted((a, b) => a - b).map(Math.round);
      console.log(`cut every second: p50 ${sorted[25]} ms, slowest ${sorted.at(-1)} ms of ${sorted.length} changes`);
    } finally {
      clearInterval(cutting);
    }
    expect(await watches(own, controller, 'failed')).toBeGreaterThan(0);
    expect((await own.lease()).transitions).toBe(transitions);
  }, 150_000);

  test('a connection that dies silently is given up within seconds', async () => {
    const [before, key] = [newApiKey(), newApiKey()];
    await own.apply('before', { partner: 'before', keys: [before] });
    await own.becomes(before, 202);
    // Open connections are deaf from now on; new ones work.
    proxy.deafen();
    await own.apply('silent', { partner: 'silent', keys: [key] });
    const took = await own.becomes(key, 202, IN_FORCE_WITHIN_MS * 2);
    console.log(`a silent watch: change in force after ${Math.round(took)} ms`);
    // Longer than any change takes: the watch was deaf indeed.
    expect(took).toBeGreaterThan(1_000);
    expect(took).toBeLessThan(20_000);
  }, 60_000);
});
