/** The way to the Kubernetes API cut every second, and silent: keys stay in force, and it heals. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { openKeysWorld, type KeysWorld } from '../support/keys-world.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { HANG_MS } from '../support/wait.ts';
import type { InProcess } from '../support/world.ts';

const watches = (own: KeysWorld, controller: InProcess, result: string): Promise<number> =>
  own.world.metric(controller, 'partner_ingest_secret_watches_total', { result });

describe('a bad way to the API server', () => {
  let own: KeysWorld;
  let proxy: TcpProxy;
  let controller: InProcess;

  beforeAll(async () => {
    own = await openKeysWorld();
    proxy = await startTcpProxy(own.cluster.server);
    controller = await own.world.start('controller', await own.settings(proxy.url));
  });
  afterAll(async () => {
    await own.close();
    await proxy.close();
  });

  test('every connection cut each second: changes go on coming into force, and nobody else takes over', async () => {
    const term = await own.term();
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
      console.log(
        `cut every second: p50 ${sorted[25]} ms, slowest ${sorted.at(-1)} ms of ${sorted.length} changes`,
      );
    } finally {
      clearInterval(cutting);
    }
    expect(await watches(own, controller, 'failed')).toBeGreaterThan(0);
    expect(await own.term()).toBe(term);
  });

  test('a connection that dies silently is given up long before everything is listed again', async () => {
    const [before, key] = [newApiKey(), newApiKey()];
    await own.apply('before', { partner: 'before', keys: [before] });
    await own.becomes(before, 202);
    // Open connections are deaf from now on; new ones work.
    proxy.deafen();
    await own.apply('silent', { partner: 'silent', keys: [key] });
    const took = await own.becomes(key, 202, HANG_MS);
    console.log(`a silent watch: change in force after ${Math.round(took)} ms`);
  });
});
