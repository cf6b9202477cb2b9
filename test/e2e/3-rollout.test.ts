/** Upgrade from the image of an earlier commit and rollback, under load. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { pause } from '../../internal/platform/process/deadline.ts';
import { deletePod, replaced } from './kill.ts';
import { startRun, type LoadRun } from './load-run.ts';
import { chartArgs, valuesFor } from './release.ts';
import { openWorld, step, type World } from './world.ts';

const MARGIN_MS = 2_000;

let world: World;
let run: LoadRun | undefined;
beforeAll(async () => {
  world = await openWorld();
  run = await startRun(world, 'rollout', 2);
}, 60_000);
afterAll(async () => {
  await run?.stop();
  world.close();
});

/** Rolls out `tag` under load; ends when only its pods are left. */
async function rollout(phase: string, tag: string, act: () => Promise<unknown>): Promise<void> {
  const load = run as LoadRun;
  load.phase(phase);
  await pause(MARGIN_MS);
  await act();
  await world.settled(`${world.images.repository}:${tag}`);
  await pause(MARGIN_MS);
  const { broken, early500, requests } = await load.outcome(phase);
  expect([broken, early500]).toEqual([[], []]);
  expect(requests).toBeGreaterThan(100);
}

const upgradeTo = (tag: string) => (): Promise<unknown> =>
  world.kubectl.helmAndWait(
    ['upgrade', world.release.name, ...chartArgs(world.tools)],
    [valuesFor(world.images, tag)],
  );

step('the rollout of the earlier commit loses no request', () =>
  rollout('to the earlier image', world.images.earlier, upgradeTo(world.images.earlier)),
);

step('the upgrade loses no request', () =>
  rollout('upgrade', world.images.current, upgradeTo(world.images.current)),
);

step('`kubectl delete pod` of each ingest pod in turn loses no request', () =>
  rollout('pods deleted', world.images.current, async () => {
    for (const pod of await world.kubectl.pods('ingest')) {
      await deletePod(world, pod);
      await replaced(world, pod);
    }
  }),
);

step('`helm rollback` loses no request, and the audit finds no problem', async () => {
  const { kubectl, images, release } = world;
  await rollout('rollback', images.earlier, () => kubectl.helmAndWait(['rollback', release.name]));
  const { violations } = await (run as LoadRun).finish(['overtaken']);
  expect(violations).toEqual([]);
  await upgradeTo(images.current)();
});
