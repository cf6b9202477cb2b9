/** Rolling upgrade from the image of an earlier commit, and the way back, while partners go on. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { pause } from '../../internal/platform/deadline.ts';
import { outcomeWords, startRun, type LoadRun } from './load-run.ts';
import { note } from './measured.ts';
import { chartArgs, valuesFor } from './release.ts';
import { openWorld, step, type World } from './world.ts';

/** Load before and after each change. */
const MARGIN_MS = 2_000;
const TIMEOUT_MS = 240_000;

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

/**
 * One rollout under load: from the command until all pods are of `tag` and those of before are
 * gone.
 */
async function rollout(phase: string, tag: string, act: () => Promise<unknown>): Promise<void> {
  const load = run as LoadRun;
  load.phase(phase);
  await pause(MARGIN_MS);
  const startedAt = performance.now();
  await act();
  await world.settled(`${world.images.repository}:${tag}`);
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(0);
  await pause(MARGIN_MS);
  const outcome = await load.outcome(phase);
  note(`requests in the rollout: ${phase}`, `${outcomeWords(outcome)}, in ${seconds} s`);
  expect({ broken: outcome.broken, early500: outcome.early500 }).toEqual({
    broken: [],
    early500: [],
  });
  expect(outcome.requests).toBeGreaterThan(100);
}

const upgradeTo = (tag: string) => (): Promise<unknown> =>
  world.kubectl.helmAndWait(
    ['upgrade', world.release.name, ...chartArgs(world.tools)],
    [valuesFor(world.images, tag)],
  );

step(
  'to the earlier commit, which is where an upgrade begins: no request is lost',
  async () => {
    note('the earlier commit', world.images.earlierCommit);
    const { earlier } = world.images;
    await rollout('to the earlier image', earlier, upgradeTo(earlier));
  },
  TIMEOUT_MS,
);

step(
  'the upgrade: no request is lost',
  async () => {
    const { current } = world.images;
    await rollout('upgrade', current, upgradeTo(current));
  },
  TIMEOUT_MS,
);

step(
  '`helm rollback`: no request is lost',
  async () => {
    await rollout('rollback', world.images.earlier, () =>
      world.kubectl.helmAndWait(['rollback', world.release.name]),
    );
  },
  TIMEOUT_MS,
);

step(
  'the upgrade once more: no request is lost, and the audit of all finds every promise kept',
  async () => {
    const { current } = world.images;
    await rollout('upgrade once more', current, upgradeTo(current));
    const { violations, total } = await (run as LoadRun).finish();
    expect(violations).toEqual([]);
    note(
      'audit of the rollouts',
      `${total.requests} requests, ${total.lost} lost, ${total.doubledAccounts} doubled accounts, ${total.secondMails} second mails`,
    );
  },
  TIMEOUT_MS + 180_000,
);
