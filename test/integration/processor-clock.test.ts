/**
 * A processor whose clock is wrong: its offset is measured, and beyond 5 s it takes no work and
 * says why.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { wrongClock } from '../support/wrong-clock.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

const offsetOf = (process: ServiceProcess): Promise<number> =>
  world.metric(process, 'partner_ingest_clock_offset_seconds');

test('60 s behind: no work, and readiness says why; 3 s behind: measured, and it does the work', async () => {
  const ingest = await world.start('ingest');
  const settings = { ...world.environment, ...wrongClock(-60), LOG_LEVEL: 'info' };
  const wrong = await startService('processor', settings);
  try {
    await eventually('the reason', async () =>
      (await (await fetch(`${wrong.adminUrl}/readyz`)).text()).includes(
        "the database's: no work is taken",
      ),
    );
    expect(Math.round((await offsetOf(wrong)) / 10) * 10).toBe(-60);
    expect((await fetch(`${wrong.adminUrl}/livez`)).status).toBe(200);

    const requestId = await submit(world, ingest, newApplication());
    await eventually(
      'its workers to be paused',
      async () => (await world.metric(wrong, 'partner_ingest_worker_paused')) === 1,
    );
    expect(await world.record(requestId)).toMatchObject({ state: 'recorded', version: 0 });

    const late = await world.spawn('processor', wrongClock(-3));
    // One measurement may be off by the time of its answer.
    await eventually('an offset of 3 s', async () => Math.round(await offsetOf(late)) === -3);
    await world.recordIn('completed', requestId);
  } finally {
    await wrong.stop();
  }
});
