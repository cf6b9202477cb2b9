/** Two controllers on one database: one leads, the other takes over, and only the leader writes. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { send } from '../support/http.ts';
import { storedKeys } from '../support/stored-keys.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

let world: World;
const started: ServiceProcess[] = [];

beforeAll(async () => {
  world = await openWorld({ controller: false });
});
afterAll(async () => {
  for (const one of started) {
    one.child.kill('SIGCONT');
    await one.stop();
  }
  await world.close();
});

const start = async (name: string): Promise<ServiceProcess> => {
  const one = await world.spawn('controller', { POD_NAME: name });
  started.push(one);
  return one;
};
const leads = async (one: ServiceProcess): Promise<boolean> =>
  (await world.metric(one, 'partner_ingest_leader')) === 1;
const countsBacklog = async (one: ServiceProcess): Promise<boolean> =>
  (await world.metric(one, 'partner_ingest_backlog_read_timestamp_seconds')) > 0;
const fileOf = (partner: string): string => join(world.keyFolder, `${partner}.yaml`);

test('one of two controllers leads, and a frozen leader is replaced and then writes and shows nothing', async () => {
  const one = await start('one');
  await eventually('a leader', () => leads(one));
  const other = await start('other');
  expect([await leads(one), await leads(other)]).toEqual([true, false]);
  await eventually('the backlog', () => countsBacklog(one));
  expect(await countsBacklog(other)).toBe(false);
  const ingest = await world.start('ingest');
  const status = async (key: string): Promise<number> =>
    (await send(ingest.url, { key, body: JSON.stringify(newApplication()) })).status;
  const becomes = (key: string, wanted: number) =>
    eventually(`${wanted}`, async () => (await status(key)) === wanted);
  const [ended, turnedOff, flickering] = [newApiKey(), newApiKey(), newApiKey()];
  await world.writePartner({ partner: 'ended', keys: [ended] });
  await world.writePartner({ partner: 'turned-off', keys: [turnedOff] });
  await becomes(ended, 202);
  await becomes(turnedOff, 202);

  // The leader may have seen a change that it is about to write.
  await world.writePartner({ partner: 'flickering', keys: [flickering] });
  one.child.kill('SIGSTOP');
  const frozenAt = performance.now();
  await rm(fileOf('ended'));
  await rm(fileOf('flickering'));
  await world.writePartner({ partner: 'turned-off', keys: [turnedOff], status: 'inactive' });
  await becomes(ended, 401);
  const seconds = (performance.now() - frozenAt) / 1_000;
  console.log(`replaced after ${seconds.toFixed(1)} s (20 s are promised)`);
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
