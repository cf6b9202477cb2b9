/** Partner keys added and ended by `kubectl apply`, also under load. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { startRun, type LoadRun } from './load-run.ts';
import { openWorld, step, type World } from './world.ts';

const CHANGES = 5;
const LOAD_MS = 4_000;

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());

step('`kubectl apply` activates a new key and ends the one it replaces', async () => {
  let before: string | undefined;
  for (let change = 0; change < CHANGES; change += 1) {
    const key = newApiKey();
    await world.applyPartner('changing', [key]);
    await Promise.all([
      world.answers(key, 202),
      before === undefined ? undefined : world.answers(before, 401),
    ]);
    before = key;
  }
});

step('a rotation under load, as docs/install.md says, fails no request', async () => {
  const run: LoadRun = await startRun(world, 'rotation', 1);
  try {
    run.phase('rotation');
    const [old, next] = [run.key, newApiKey()];
    await pause(LOAD_MS / 2);
    const patch = `patch secret partner-load-rotation --namespace ${world.release.keysNamespace}`;
    await world.kubectl.run(`${patch} --patch {"stringData":{"key-2":"${next}"}}`);
    await world.answers(next, 202);
    run.key = next;
    await pause(LOAD_MS);
    await world.kubectl.run(`${patch} --type=json --patch [{"op":"remove","path":"/data/key-1"}]`);
    await world.answers(old, 401);
    await pause(LOAD_MS);
    const { violations } = await run.finish();
    const { broken, early500, requests } = await run.outcome('rotation');
    expect([broken, early500, violations]).toEqual([[], [], []]);
    expect(requests).toBeGreaterThan(100);
  } finally {
    await run.stop();
  }
});

step('a partner is answered 403 when switched off, and 401 without its Secret', async () => {
  const key = newApiKey();
  await world.applyPartner('switched', [key]);
  await world.answers(key, 202);
  await world.applyPartner('switched', [key], 'inactive');
  await world.answers(key, 403);
  await world.applyPartner('switched', [key], 'active');
  await world.answers(key, 202);
  await world.deletePartner('switched');
  await world.answers(key, 401);
});
