/** The greatest number of keys, from Secrets to ingest. */
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { KEYS_MAX } from '../../internal/partner/key-document.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { send } from '../support/http.ts';
import { storedKeys } from '../support/stored-keys.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const PARTNERS = 10;

const { world } = await worldOf([], { controller: false });
let controller: ServiceProcess;
let ingest: ServiceProcess;

beforeAll(async () => {
  controller = await world.spawn('controller');
  ingest = await world.spawn('ingest');
});

async function becomes(key: string, wanted: number): Promise<string> {
  const beganAt = performance.now();
  await eventually(`${wanted}`, async () => {
    const body = JSON.stringify(newApplication());
    return (await send(ingest.url, { key, body })).status === wanted;
  });
  return `${Math.round(performance.now() - beganAt)} ms`;
}

test.each([1_000, KEYS_MAX])(
  'among %i keys a new key, a revoked key and a disabled partner take effect',
  async (count) => {
    const [last, added] = [newApiKey(), newApiKey()];
    for (let one = 0; one < PARTNERS; one += 1) {
      const keys = Array.from({ length: count / PARTNERS - 1 }, newApiKey);
      await world.writePartner({ partner: `p${one}`, keys });
    }
    await world.writePartner({ partner: 'last', keys: [last] });
    await becomes(last, 202);
    expect((await storedKeys(world.stores.db)).length).toBeGreaterThan(count - PARTNERS);

    await world.writePartner({ partner: 'new', keys: [added] });
    const arrival = await becomes(added, 202);
    const store = new KeyStore({ db: world.stores.db, clock });
    await store.revoke(hashApiKey(added));
    const revocation = await becomes(added, 401);
    await store.disabled.set('last', 'jane');
    const disabling = await becomes(last, 403);
    await store.disabled.clear('last', 'jane');
    console.log(`${count} keys: new ${arrival}, revoked ${revocation}, disabled ${disabling}`);
  },
);

test('if all Secrets are lost, no key ends and the controller warns', async () => {
  const before = (await storedKeys(world.stores.db)).filter(
    // An operator revoked it, so it ends with its Secret.
    ({ partnerId }) => partnerId !== 'new',
  );
  const lost = `${world.keyFolder}.lost`;
  await rename(world.keyFolder, lost);
  await mkdir(world.keyFolder);
  await writeFile(join(world.keyFolder, 'none.yaml'), '# no Secret\n');
  const problem = { problem: 'keys_would_end' };
  await eventually(
    'the problem',
    async () => (await world.metric(controller, 'partner_ingest_secret_problems', problem)) === 1,
  );
  const readyz = await fetch(`${controller.adminUrl}/readyz`);
  expect([readyz.status, await readyz.json()]).toEqual([
    200,
    { ok: true, faults: [], warnings: [expect.stringContaining('stay active')] },
  ]);
  expect(await storedKeys(world.stores.db)).toEqual(before);
  await rm(lost, { recursive: true });
});
