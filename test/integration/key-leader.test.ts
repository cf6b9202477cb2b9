/** Two controllers on one database, and the greatest number of keys. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeAll, expect, test } from '@jest/globals';
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
let one: ServiceProcess;
let ingest: ServiceProcess;

beforeAll(async () => {
  one = await world.spawn('controller', { POD_NAME: 'one' });
  ingest = await world.spawn('ingest');
});
afterEach(() => void one.child.kill('SIGCONT'));

const leads = async (of: ServiceProcess): Promise<boolean> =>
  (await world.metric(of, 'partner_ingest_leader')) === 1;
const countsBacklog = async (of: ServiceProcess): Promise<boolean> =>
  (await world.metric(of, 'partner_ingest_backlog_read_timestamp_seconds')) > 0;
const fileOf = (partner: string): string => join(world.keyFolder, `${partner}.yaml`);

const status = async (key: string): Promise<number> =>
  (await send(ingest.url, { key, body: JSON.stringify(newApplication()) })).status;

/** Waits until `key` is answered with `wanted`; returns the time. */
async function becomes(key: string, wanted: number): Promise<string> {
  const beganAt = performance.now();
  await eventually(`${wanted}`, async () => (await status(key)) === wanted);
  return `${Math.round(performance.now() - beganAt)} ms`;
}

test('one of two controllers leads, and a frozen leader is replaced and then writes and shows nothing', async () => {
  await eventually('a leader', () => leads(one));
  const other = await world.spawn('controller', { POD_NAME: 'other' });
  expect([await leads(one), await leads(other)]).toEqual([true, false]);
  await eventually('the backlog', () => countsBacklog(one));
  expect(await countsBacklog(other)).toBe(false);
  const [ended, turnedOff, flickering] = [newApiKey(), newApiKey(), newApiKey()];
  await world.writePartner({ partner: 'ended', keys: [ended] });
  await world.writePartner({ partner: 'turned-off', keys: [turnedOff] });
  await becomes(ended, 202);
  await becomes(turnedOff, 202);

  // The leader may have seen a change that it is about to write.
  await world.writePartner({ partner: 'flickering', keys: [flickering] });
  one.child.kill('SIGSTOP');
  await rm(fileOf('ended'));
  await rm(fileOf('flickering'));
  await world.writePartner({ partner: 'turned-off', keys: [turnedOff], status: 'inactive' });
  console.log(`replaced after ${await becomes(ended, 401)} (20 s are promised)`);
  await becomes(turnedOff, 403);
  expect(await leads(other)).toBe(true);
  const before = await storedKeys(world.stores.db);

  one.child.kill('SIGCONT');
  await eventually('it to notice', () =>
    one.lines.some((line) => line.includes('"no longer leading"')),
  );
  await eventually('it to stand by', async () => (await fetch(`${one.adminUrl}/readyz`)).ok);
  expect([await leads(one), await leads(other)]).toEqual([false, true]);
  await eventually('the backlog', () => countsBacklog(other));
  await eventually('its backlog to go', async () => !(await countsBacklog(one)));
  expect(await storedKeys(world.stores.db)).toEqual(before);
  expect(await status(flickering)).toBe(401);

  expect(await other.stop()).toBe(0);
  await world.writePartner({ partner: 'late', keys: [flickering] });
  await becomes(flickering, 202);
  expect(await leads(one)).toBe(true);
});

test(`among ${KEYS_MAX} keys a new key, a revoked key and a disabled partner take effect`, async () => {
  const [last, added] = [newApiKey(), newApiKey()];
  for (let partner = 0; partner < PARTNERS; partner += 1) {
    const keys = Array.from({ length: KEYS_MAX / PARTNERS - 1 }, newApiKey);
    await world.writePartner({ partner: `p${partner}`, keys });
  }
  await world.writePartner({ partner: 'last', keys: [last] });
  await becomes(last, 202);
  expect((await storedKeys(world.stores.db)).length).toBeGreaterThan(KEYS_MAX - PARTNERS);

  await world.writePartner({ partner: 'new', keys: [added] });
  const arrival = await becomes(added, 202);
  const store = new KeyStore({ db: world.stores.db, clock });
  await store.revoke(hashApiKey(added));
  const revocation = await becomes(added, 401);
  await store.disabled.change('last', true, 'jane');
  const disabling = await becomes(last, 403);
  console.log(`new ${arrival}, revoked ${revocation}, disabled ${disabling}`);
});
