/**
 * Two controllers on one database: one leads, the other takes over, and only the leader's source
 * counts.
 */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_KEYS, type PartnerKey } from '../../internal/partner/key-store.ts';
import { partnerSecretManifest } from '../../internal/partner/key-manifest.ts';
import { send } from '../support/http.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, type InProcess, type World } from '../support/world.ts';

/** What is promised. */
const TAKE_OVER_MS = 20_000;

let world: World;
let ingest: InProcess;
const started: ServiceProcess[] = [];

beforeAll(async () => {
  world = await openWorld({ controller: false });
  const first = await world.start('controller');
  ingest = await world.start('ingest');
  await first.close();
});
afterAll(() => world.close());
afterEach(async () => {
  for (const one of started.splice(0)) {
    one.child.kill('SIGCONT');
    await one.stop();
  }
});

const start = async (name: string, folder = world.keyFolder): Promise<ServiceProcess> => {
  const one = await world.spawn('controller', {
    POD_NAME: name,
    PARTNER_KEYS_SOURCE: `directory:${folder}`,
  });
  started.push(one);
  return one;
};
const leads = async (one: ServiceProcess): Promise<boolean> =>
  (await world.metric(one, 'partner_ingest_leader')) === 1;
const status = async (key: string): Promise<number> =>
  (await send(ingest.url, { key, body: JSON.stringify(newApplication()) })).status;
/** Gives the milliseconds it took. */
async function becomes(key: string, wanted: number): Promise<number> {
  const startedAt = performance.now();
  await eventually(`${wanted}`, async () => (await status(key)) === wanted, HANG_MS);
  return Math.round(performance.now() - startedAt);
}
const newKeyWorks = async (): Promise<number> => {
  const key = newApiKey();
  await world.writePartner({ partner: `p-${hashApiKey(key).slice(0, 8)}`, keys: [key] });
  return becomes(key, 202);
};
const allKeys = async (): Promise<PartnerKey[]> => {
  const keys = await world.stores.db
    .collection<PartnerKey>(PARTNER_KEYS)
    .find()
    .sort({ _id: 1 })
    .toArray();
  return keys.map(({ lastUsedAt: _used, ...key }) => key);
};
const fileOf = (partner: string): string => join(world.keyFolder, `${partner}.yaml`);

test('of two on one folder, one leads and both are ready; after a SIGTERM the other leads at once', async () => {
  const [one, other] = [await start('one'), await start('other')];
  expect([await leads(one), await leads(other)]).toEqual([true, false]);
  await newKeyWorks();
  expect(await one.stop()).toBe(0);
  const took = await newKeyWorks();
  console.log(`take-over after SIGTERM: a new key works after ${took} ms`);
  expect(await leads(other)).toBe(true);
});

test('a leader killed: the standby makes keys active in time', async () => {
  const [one, other] = [await start('one'), await start('other')];
  one.child.kill('SIGKILL');
  const took = await newKeyWorks();
  console.log(`take-over after SIGKILL: a new key works after ${took} ms`);
  expect(took).toBeLessThan(TAKE_OVER_MS);
  expect(await leads(other)).toBe(true);
});

test('a leader frozen until another leads, and thawed in the middle of changes, writes nothing and stands by', async () => {
  const [ended, turnedOff] = [newApiKey(), newApiKey()];
  await world.writePartner({ partner: 'ended', keys: [ended] });
  await world.writePartner({ partner: 'turned-off', keys: [turnedOff] });
  const [one, other] = [await start('one'), await start('other')];
  await becomes(ended, 202);
  await becomes(turnedOff, 202);

  // It has seen a change, perhaps, and is about to write it.
  const flickering = newApiKey();
  await world.writePartner({ partner: 'flickering', keys: [flickering] });
  one.child.kill('SIGSTOP');
  await rm(fileOf('ended'));
  await rm(fileOf('flickering'));
  await world.writePartner({ partner: 'turned-off', keys: [turnedOff], status: 'inactive' });
  await becomes(ended, 401);
  await becomes(turnedOff, 403);
  expect(await leads(other)).toBe(true);
  const before = await allKeys();

  one.child.kill('SIGCONT');
  await eventually('it to notice', () =>
    one.lines.some((line) => line.includes('"no longer leading"')),
  );
  await eventually('it to stand by', async () => (await fetch(`${one.adminUrl}/readyz`)).ok);
  expect([await leads(one), await leads(other)]).toEqual([false, true]);
  expect(await allKeys()).toEqual(before);
  expect(await status(flickering)).toBe(401);

  await other.stop();
  await newKeyWorks();
  expect(await leads(one)).toBe(true);
});

test('removed and installed again, under whatever name: keys are what the new source says', async () => {
  const [kept, dropped] = [newApiKey(), newApiKey()];
  await world.writePartner({ partner: 'kept', keys: [kept] });
  await world.writePartner({ partner: 'dropped', keys: [dropped] });
  const before = await start('before');
  await becomes(kept, 202);
  await becomes(dropped, 202);
  await before.stop();

  // The Secrets of another place, where one partner's are not.
  const folder = `${world.keyFolder}-elsewhere`;
  await mkdir(folder);
  for (const { partner, keys } of [
    { partner: 'demo', keys: [world.key] },
    { partner: 'kept', keys: [kept] },
  ]) {
    const { yaml } = partnerSecretManifest({
      name: `partner-${partner}`,
      namespace: 'elsewhere',
      partner,
      keys,
    });
    await writeFile(join(folder, `${partner}.yaml`), yaml);
  }
  // These are many more than the deferral lets pass, so an operator confirms.
  await start('after', folder);
  expect(await status(kept)).toBe(202);
  await eventually('the ends to be deferred', async () =>
    (await allKeys()).some(({ deferredAt }) => deferredAt),
  );
  await world.stores.db
    .collection(PARTNER_KEYS)
    .updateMany({ deferredAt: { $exists: true } }, { $set: { confirmedAt: new Date() } });
  await becomes(dropped, 401);
  expect(await status(kept)).toBe(202);
  await rm(join(folder, 'kept.yaml'));
  await becomes(kept, 401);
  await rm(folder, { recursive: true });
});
