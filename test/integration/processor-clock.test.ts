/** Local clocks that are wrong: processes go by the database's time. */
import { expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { leapingClock } from '../support/leaping-clock.ts';
import { submit } from '../support/processing.ts';
import { newApplication, worldOf } from '../support/world.ts';

const { world } = await worldOf();

test('a record has the right time and is processed at once, although clocks are wrong', async () => {
  const processes: ServiceProcess[] = [await world.spawn('processor', leapingClock(3_600))];
  for (const seconds of [3_600, -30 * 86_400]) {
    const ingest = await world.spawn('ingest', leapingClock(seconds));
    const controller = await world.spawn('controller', leapingClock(-seconds));
    processes.push(ingest, controller);
    const before = Date.now();
    const id = await submit(world, ingest, newApplication());
    const { receivedAt } = await world.recordIn('completed', id);
    expect(Math.abs(receivedAt.getTime() - before)).toBeLessThan(60_000);
  }
  for (const process of processes) expect(await process.stop()).toBe(0);
});
