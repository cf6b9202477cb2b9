/** Takes away each part of the install under load, then runs the audit of `make chaos`. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import {
  busiest,
  crash,
  deleteByForce,
  deletePod,
  leader,
  podOf,
  replaced,
  startedAgain,
} from './kill.ts';
import type { PodInfo } from './kubectl.ts';
import { startRun, type LoadRun } from './load-run.ts';
import { openWorld, step, type World } from './world.ts';

const MARGIN_MS = 2_000;
/** A dead leader costs 20 s at most on a quiet machine. */
const TAKE_OVER_HANG_MS = 80_000;
/** A node stops a deleted pod some seconds after the API has removed it. */
const STOPS_FOR_MS = 10_000;

/** Kills of ingest and processor allow these findings. */
const ALLOWED = ['processed_after_500', 'second_mail', 'dead_letter'] as const;

let world: World;
let load: LoadRun | undefined;
beforeAll(async () => {
  world = await openWorld();
  load = await startRun(world, 'faults', 3);
}, 60_000);
afterAll(async () => {
  await load?.stop();
  world.close();
});

async function fault(phase: string, act: (run: LoadRun) => Promise<void>): Promise<void> {
  const run = load as LoadRun;
  run.phase(phase);
  await pause(MARGIN_MS);
  await act(run);
  await pause(MARGIN_MS);
  expect((await run.outcome(phase)).requests).toBeGreaterThan(50);
}

/** Marks each second as one in which a processor may end. */
async function whileProcessorsEnd(run: LoadRun, act: () => Promise<void>): Promise<void> {
  run.processorStopped();
  const timer = setInterval(() => run.processorStopped(), 1_000);
  try {
    await act();
  } finally {
    setTimeout(() => clearInterval(timer), STOPS_FOR_MS).unref();
  }
}

step('ingest survives `kubectl delete pod --force` and a crash', async () => {
  await fault('ingest deleted by force', async (run) => {
    const pod = await busiest(world);
    await deleteByForce(world, pod);
    run.ingestKilled('ingest deleted by force');
    await replaced(world, pod);
  });
  await fault('ingest crashed', async (run) => {
    const pod = await busiest(world);
    await crash(world, pod);
    run.ingestKilled('ingest crashed');
    await startedAgain(world, pod);
  });
});

step('the processor survives `kubectl delete pod --force` and a crash', async () => {
  await fault('processor deleted by force', (run) =>
    whileProcessorsEnd(run, async () => {
      const pod = await podOf(world, 'processor');
      await deleteByForce(world, pod);
      await replaced(world, pod);
    }),
  );
  await fault('processor crashed', (run) =>
    whileProcessorsEnd(run, async () => {
      const pod = await podOf(world, 'processor');
      await crash(world, pod);
      await startedAgain(world, pod);
    }),
  );
});

/** Ends the leader, then waits until a new key is active in every pod. */
async function takeOver(end: (led: PodInfo) => Promise<void>): Promise<PodInfo> {
  const led = await leader(world);
  await end(led);
  const key = newApiKey();
  await world.applyPartner('after-the-leader', [key]);
  await world.answers(key, 202, TAKE_OVER_HANG_MS);
  return led;
}

step('another controller leads after a deleted leader, and after one that crashed', async () => {
  await fault('controller deleted by force', async () => {
    const led = await takeOver((pod) => deleteByForce(world, pod));
    expect((await leader(world)).metadata.uid).not.toBe(led.metadata.uid);
    await replaced(world, led);
  });
  await fault('controller crashed', async () =>
    startedAgain(world, await takeOver((pod) => crash(world, pod))),
  );
});

step('no work is lost with the pod of Redis and all its data', async () => {
  const redis = (...words: string[]): Promise<string> =>
    world.kubectl.run(['exec', `${world.release.fullname}-redis-0`, '--', 'redis-cli', ...words]);
  await redis('SET', 'e2e-marker', 'there');
  await fault('Redis deleted with its data', async () => {
    const pod = await podOf(world, 'redis');
    await deletePod(world, pod, 1);
    await replaced(world, pod);
  });
  expect((await redis('GET', 'e2e-marker')).trim()).toBe('');
});

step('no work is lost while the pod of MongoDB is replaced', async () => {
  await fault('MongoDB restarted', async () => {
    const pod = await podOf(world, 'mongodb');
    await deletePod(world, pod);
    await replaced(world, pod);
  });
});

step('the audit finds nothing lost, doubled or processed after a 500', async () => {
  const { violations, total } = await (load as LoadRun).finish(ALLOWED);
  expect(violations).toEqual([]);
  expect(total.accepted).toBeGreaterThan(500);
});
