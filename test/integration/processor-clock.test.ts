/**
 * A processor whose clock is wrong: its offset is measured, and beyond 5 s it takes no work and
 * says why.
 */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { submit } from '../support/processing.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { wrongClock } from '../support/wrong-clock.ts';
import { newApplication, openWorld, type InProcess, type World } from '../support/world.ts';

let world: World;
let ingest: InProcess;
const started: ServiceProcess[] = [];

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
});
afterEach(async () => {
  for (const one of started.splice(0)) await one.stop();
});
afterAll(() => world.close());

const offsetOf = (process: ServiceProcess): Promise<number> =>
  world.metric(process, 'partner_ingest_clock_offset_seconds');

test.each([60, -60])(
  '%i s: no work, and readiness says why; a processor with a right clock does it',
  async (seconds) => {
    const settings = { ...world.environment, ...wrongClock(seconds), LOG_LEVEL: 'info' };
    const wrong = await startService('processor', settings);
    started.push(wrong);
    const readiness = async (): Promise<string> => (await fetch(`${wrong.adminUrl}/readyz`)).text();
    await eventually(
      'the reason',
      async () => (await readiness()).includes("the database's: no work is taken"),
      HANG_MS,
    );
    expect(Math.round((await offsetOf(wrong)) / 10) * 10).toBe(seconds);
    expect((await fetch(`${wrong.adminUrl}/livez`)).status).toBe(200);

    const requestId = await submit(world, ingest, newApplication());
    await eventually(
      'its workers to be paused',
      async () => (await world.metric(wrong, 'partner_ingest_worker_paused')) === 1,
    );
    expect(await world.record(requestId)).toMatchObject({ state: 'recorded', version: 0 });

    const right = await world.spawn('processor');
    started.push(right);
    expect(Math.abs(await offsetOf(right))).toBeLessThan(5);
    await world.recordIn('completed', requestId, HANG_MS);
  },
);

test('3 s: measured, and work goes on', async () => {
  const late = await world.spawn('processor', wrongClock(-3));
  started.push(late);
  // One measurement may be off by the time of its answer.
  await eventually('an offset of 3 s', async () => Math.round(await offsetOf(late)) === -3);
  await world.recordIn('completed', await submit(world, ingest, newApplication()), HANG_MS);
});
