/** The controller with a Kubernetes API that is killed, hung, restarted or badly reached. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { startOwnApiServer, type OwnApiServer } from '../support/cluster.ts';
import { openKeysWorld, type KeysWorld } from '../support/keys-world.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import type { InProcess } from '../support/world.ts';

describe('a faulty API server', () => {
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
  });
  afterAll(async () => {
    await own.close();
    await proxy.close();
    await api.kill();
  });

  /** After each test the server runs. */
  afterEach(async () => {
    proxy.pass();
    api.signal('SIGCONT');
    if (!api.running()) await api.start();
    await own.remove('meanwhile').catch(() => undefined);
  });

  const keysStay = async (): Promise<void> => {
    expect([await own.status(kept), await own.status(inactive)]).toEqual([202, 403]);
  };
  /** Adds a key through the healthy API server. */
  const addMeanwhile = async (): Promise<string> => {
    const key = newApiKey();
    await own.apply('meanwhile', { partner: 'meanwhile', keys: [key] });
    return key;
  };

  test('when it is killed, keys stay active and missed changes follow later', async () => {
    const victim = newApiKey();
    await own.apply('victim', { partner: 'victim', keys: [victim] });
    await own.becomes(victim, 202);
    await api.kill();
    const added = await addMeanwhile();
    // The restarted server reports no deletion to a watch of an older version.
    await own.remove('victim');
    await keysStay();
    const isReady = async () => (await fetch(`${controller.adminUrl}/readyz`)).ok;
    await eventually('unreadiness', async () => !(await isReady()), HANG_MS);
    await keysStay();
    await api.start();
    await own.becomes(added, 202);
    await own.becomes(victim, 401);
    await own.remove('meanwhile');
    await own.becomes(added, 401);
    await keysStay();
    await eventually('readiness', isReady);
  });

  test('when it hangs, this is noticed although no connection breaks', async () => {
    const failed = (): Promise<number> =>
      own.world.metric(controller, 'partner_ingest_secret_watches_total', { result: 'failed' });
    const before = await failed();
    api.signal('SIGSTOP');
    const added = await addMeanwhile();
    await eventually(
      'a watch that hangs to be given up',
      async () => (await failed()) > before,
      HANG_MS,
    );
    await keysStay();
    api.signal('SIGCONT');
    await own.becomes(added, 202);
    await own.remove('meanwhile');
    await own.becomes(added, 401);
    await keysStay();
  });

  test('while every connection is cut each second, changes arrive and the leader stays', async () => {
    const failed = (): Promise<number> =>
      own.world.metric(controller, 'partner_ingest_secret_watches_total', { result: 'failed' });
    const [holder, before] = [await own.holder(), await failed()];
    const cutting = setInterval(() => proxy.cut(), 1_000);
    try {
      for (let round = 0; round < 5; round += 1) {
        const key = newApiKey();
        await own.apply('meanwhile', { partner: 'meanwhile', keys: [key] });
        await own.becomes(key, 202);
        await own.remove('meanwhile');
        await own.becomes(key, 401);
      }
    } finally {
      clearInterval(cutting);
    }
    expect(await failed()).toBeGreaterThan(before);
    expect(await own.holder()).toBe(holder);
  });

  test('a silent connection is replaced long before the next full list', async () => {
    // Open connections hang from now on, and new ones work.
    proxy.deafen();
    await own.becomes(await addMeanwhile(), 202);
  });
});
