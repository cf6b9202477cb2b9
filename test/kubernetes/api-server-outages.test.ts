/** The Kubernetes API killed, hung, restarted without its memory, and cut off every second: keys stay in force, and it heals. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { CoreV1Api } from '@kubernetes/client-node';
import { kubernetesSource } from '../../internal/controller/kubernetes-source.ts';
import { CALL_TIMEOUT_MS } from '../../internal/controller/limits.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { Kubernetes } from '../../internal/platform/kubernetes.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { createControllerMetrics, createRegistry } from '../../internal/telemetry/metrics.ts';
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
    // The source alone: a leader would lose the Lease to a slow restart, and list anew for that reason.
    const [namespace = ''] = own.keys;
    const kubernetes = new Kubernetes(await own.cluster.controllerKubeconfig(own.home, proxy.url));
    const metrics = createControllerMetrics(createRegistry('controller'));
    const source = kubernetesSource([namespace], {
      kubernetes,
      core: kubernetes.client(CoreV1Api, CALL_TIMEOUT_MS),
      clock,
      log: createLogger('test', 'silent'),
      metrics,
    });
    const stop = new AbortController();
    const view = source.follow(() => {}, stop.signal);
    const names = async (): Promise<string> =>
      (await view.list()).secrets
        .map(({ name }) => name)
        .toSorted()
        .join(' ');
    const count = async (counter: typeof metrics.secretLists, result: string): Promise<number> =>
      (await counter.get()).values.find(({ labels }) => labels.result === result)?.value ?? 0;
    await own.apply('victim', { partner: 'victim', keys: [newApiKey()] });
    await eventually('the first ones', async () => (await names()) === 'kept off victim');

    // The broken watch asks again at once, and is heard when the server is back: its memory begins after our version.
    proxy.park();
    await api.kill();
    await own.apply('off', { partner: 'off', keys: [inactive], status: 'inactive' });
    await addMeanwhile();
    // A deletion that no event will ever tell.
    await own.remove('victim');
    await api.start();
    proxy.pass();
    await eventually('what is there now', async () => (await names()) === 'kept meanwhile off', BACK_WITHIN_MS);
    expect(await count(metrics.secretWatches, 'expired')).toBe(1);
    expect(await count(metrics.secretLists, 'complete')).toBe(2);
    expect(await count(metrics.secretLists, 'failed')).toBe(0);
    stop.abort();
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
