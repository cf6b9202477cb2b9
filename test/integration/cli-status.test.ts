/** `partner-ingest status` says what is wrong with the processes and the database. */
import { expect, test } from '@jest/globals';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { newRecord } from '../support/records.ts';
import { runCli, type Ran } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const names = ['controller', 'ingest', 'processor'] as const;
const { world, ...processes } = await worldOf(names, { controller: false });
const CONSOLE_PROCESSES = Object.values(processes)
  .map(({ adminUrl }) => adminUrl)
  .join(',');

const status = (more: Readonly<Record<string, string>> = {}, ...words: string[]): Promise<Ran> =>
  runCli({ ...world.environment, CONSOLE_PROCESSES, ...more }, 'status', ...words);
interface Told {
  readonly problems: readonly { readonly weight: string; readonly what: string }[];
  readonly unread: readonly string[];
  readonly pods: readonly { readonly component: string; readonly ready: boolean }[];
  readonly last_hour: { readonly accepted: number } | null;
}

test('it is 0 when nothing is wrong, 1 for warnings, 2 for a fault', async () => {
  await world.recordIn('completed', await submit(world, processes.ingest, newApplication()));
  const well = await eventually('all to be read', async () => {
    const ran = await status({}, '--json');
    return ran.code === 0 && (ran.json<Told>().last_hour?.accepted ?? 0) > 0 && ran;
  });
  expect(well.json<Told>()).toMatchObject({
    problems: [],
    unread: [],
    pods: names.map((component) => expect.objectContaining({ component, ready: true })),
  });
  const page = await status();
  expect(page).toMatchObject({ code: 0, stderr: '' });
  expect(page.stdout).toMatch(/^Now, .* UTC\nNothing is wrong\.\n/);

  const annotations = { 'partner-ingest.io/max-per-minute': 'abc' };
  await world.writePartner({ partner: 'broken', keys: [newApiKey()], annotations });
  const warned = await eventually('the warning', async () => {
    const ran = await status();
    return ran.code === 1 && ran;
  });
  expect(warned.stdout).toMatch(/^WARNING +.*\(Secret partner-keys\/partner-broken broken\)$/m);

  const { dueAt: _, ...dead } = newRecord({ state: 'dead_lettered', lastError: 'crashed' });
  await world.stores.requests.insertOne(dead);
  const bad = await status();
  expect(bad.code).toBe(2);
  expect(bad.stdout).toMatch(/^FAULT +1 given up \(dead letters\)/m);
});

test('what cannot be read is named, with 2', async () => {
  const nowhere = `http://127.0.0.1:${await freePort()}`;
  const silent = await status({ CONSOLE_PROCESSES: `${CONSOLE_PROCESSES},${nowhere}` });
  expect([silent.code, silent.stdout]).toEqual([
    2,
    expect.stringMatching(/^FAULT +does not answer at its admin port \(ECONNREFUSED\) \(127/m),
  ]);
  const blind = await status({ CONSOLE_PROCESSES: '' });
  expect([blind.code, blind.stdout]).toEqual([2, expect.stringMatching(/^Not read: the pods, /m)]);
  // The pods are shown while the database is away.
  const away = `mongodb://127.0.0.1:${await freePort()}/?directConnection=true&serverSelectionTimeoutMS=300`;
  const alone = await status({ MONGODB_URI: away });
  expect(alone.code).toBe(2);
  expect(alone.stdout).toMatch(/^Not read: the database\.$/m);
  expect(alone.stdout).toMatch(/^FAULT +MongoDB at .* \(database\)$/m);
  expect(alone.stdout).toMatch(/^ *Ready +controller 1 of 1, ingest 1 of 1, processor 1 of 1$/m);
  expect(await status({ MONGODB_URI: '' })).toMatchObject({ code: 2, stdout: '' });
});
