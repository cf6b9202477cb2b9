/**
 * Every part of the install taken away under load, one after the other; then the audit of `make
 * chaos`.
 */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { table } from '../../internal/platform/terminal.ts';
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
import { outcomeWords, startRun, type LoadRun } from './load-run.ts';
import { note } from './measured.ts';
import { openWorld, step, type World } from './world.ts';

const MARGIN_MS = 2_000;
const TIMEOUT_MS = 180_000;
/**
 * Four times the 20 s that the death of a leader costs at most on a quiet machine: a bound against
 * a hang.
 */
const TAKE_OVER_HANG_MS = 80_000;
/**
 * Long after its deletion a pod may still be at work: its node has to hear of it, and gives it
 * time.
 */
const STOPS_FOR_MS = 10_000;

/** Ingest and processor pods are killed; Redis and MongoDB coming back excuse nothing. */
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

/**
 * A fault under load, with load before and after; how long it took until all pods were ready again
 * is noted.
 */
async function fault(phase: string, act: (run: LoadRun) => Promise<void>): Promise<void> {
  const run = load as LoadRun;
  run.phase(phase);
  await pause(MARGIN_MS);
  const startedAt = performance.now();
  await act(run);
  const took = secondsSince(startedAt);
  await pause(MARGIN_MS);
  const outcome = await run.outcome(phase);
  note(phase, `all ready again after ${took} s; requests: ${outcomeWords(outcome)}`);
  expect(outcome.requests).toBeGreaterThan(50);
}

/** Notes every second from now on that a processor may just be ending. */
async function whileProcessorsEnd(run: LoadRun, act: () => Promise<void>): Promise<void> {
  run.processorStopped();
  const timer = setInterval(() => run.processorStopped(), 1_000);
  try {
    await act();
  } finally {
    setTimeout(() => clearInterval(timer), STOPS_FOR_MS).unref();
  }
}

step(
  'ingest: `kubectl delete pod --force`, and a crash',
  async () => {
    await fault('ingest deleted by force', async (run) => {
      run.ingestKilled('ingest deleted by force');
      const pod = await busiest(world);
      await deleteByForce(world, pod);
      await replaced(world, pod);
    });
    await fault('ingest crashed', async (run) => {
      run.ingestKilled('ingest crashed');
      const pod = await busiest(world);
      await crash(world, pod);
      await startedAgain(world, pod);
    });
  },
  TIMEOUT_MS,
);

step(
  'processor: `kubectl delete pod --force`, and a crash',
  async () => {
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
  },
  TIMEOUT_MS,
);

/**
 * Ends the leader; then a key that is new since then has to come into force at every pod. Gives who
 * led.
 */
async function takeOver(
  how: 'deleted by force' | 'crashed',
  end: (led: PodInfo) => Promise<void>,
): Promise<PodInfo> {
  const led = await leader(world);
  await end(led);
  const endedAt = performance.now();
  const key = newApiKey();
  await world.applyPartner('after-the-leader', [key]);
  await world.answers(key, 202, TAKE_OVER_HANG_MS);
  note(`controller that leads ${how} → a new key in force`, `${secondsSince(endedAt)} s`);
  return led;
}

step(
  'controller: the leader is deleted by force, then the next one crashes; another takes over, and new keys come into force',
  async () => {
    await fault('controller deleted by force', async () => {
      const led = await takeOver('deleted by force', (pod) => deleteByForce(world, pod));
      expect((await leader(world)).metadata.uid).not.toBe(led.metadata.uid);
      await replaced(world, led);
    });
    await fault('controller crashed', async () => {
      await startedAgain(world, await takeOver('crashed', (pod) => crash(world, pod)));
    });
  },
  TIMEOUT_MS,
);

step(
  'Redis: its pod is deleted, and all its data with it',
  async () => {
    const redis = (...words: string[]): Promise<string> =>
      world.kubectl.run(['exec', `${world.release.fullname}-redis-0`, '--', 'redis-cli', ...words]);
    await redis('SET', 'e2e-marker', 'there');
    await fault('Redis deleted with its data', async () => {
      const pod = await podOf(world, 'redis');
      await deletePod(world, pod, 1);
      await replaced(world, pod);
    });
    expect((await redis('GET', 'e2e-marker')).trim()).toBe('');
  },
  TIMEOUT_MS,
);

step(
  'MongoDB: its pod is deleted and comes back with its volume',
  async () => {
    await fault('MongoDB restarted', async () => {
      const pod = await podOf(world, 'mongodb');
      await deletePod(world, pod);
      await replaced(world, pod);
    });
  },
  TIMEOUT_MS,
);

step(
  'the audit: nothing lost, nothing doubled, nothing processed after a 500',
  async () => {
    const startedAt = performance.now();
    const { violations, total, windows, phases } = await (load as LoadRun).finish(ALLOWED);
    const head = [
      '',
      'requests',
      '202',
      '400',
      '401/403',
      '500',
      'no answer',
      'lost',
      'second mails',
    ];
    const rows = [...phases].map(([phase, of]) => {
      const counts = [
        of.requests,
        of.accepted,
        of.malformed,
        of.refused,
        of.failed,
        of.noAnswer,
        of.lost,
        of.secondMails,
      ];
      return [phase, ...counts.map(String)];
    });
    console.log(table([head, ...rows]));
    note('final after the last fault', `${secondsSince(startedAt)} s`);
    note(
      'audit of the faults',
      `${total.requests} requests, ${total.accepted} × 202, ${total.lost} lost, ${total.doubledAccounts} doubled accounts, ` +
        `${total.secondMails} second mails, ${windows.length} in documented windows, ${violations.length} violations`,
    );
    expect(violations).toEqual([]);
    expect(total.accepted).toBeGreaterThan(1_000);
  },
  TIMEOUT_MS + 120_000,
);

function secondsSince(startedAt: number): string {
  return ((performance.now() - startedAt) / 1_000).toFixed(1);
}
