/** When a consumer counts as stuck. */
import { expect, test } from '@jest/globals';
import { progressProbe } from './progress.ts';

const DEADLINE_MS = 60_000;

/** A consumer that takes a job when told to, on a clock of its own. */
function scene() {
  let nowMs = 0;
  let takenMs = 0;
  const state = { paused: false, waiting: 0, redisAway: false };
  const probe = progressProbe({
    consumer: {
      queue: 'applications',
      get paused() {
        return state.paused;
      },
      idleMs: () => nowMs - takenMs,
    },
    waiting: () => (state.redisAway ? Promise.reject(new Error('away')) : Promise.resolve(state.waiting)),
    deadlineMs: DEADLINE_MS,
    clock: { now: () => new Date(nowMs), monotonicMs: () => nowMs },
  });
  return {
    state,
    probe,
    take: (): void => void (takenMs = nowMs),
    /** Probes every 10 s for `seconds`, as a kubelet does; gives the number of complaints. */
    after: async (seconds: number): Promise<number> => {
      let complaints = 0;
      for (let second = 10; second <= seconds; second += 10) {
        nowMs += 10_000;
        complaints += (await probe()).length;
      }
      return complaints;
    },
  };
}

test('jobs that wait for a minute while none is taken are a complaint, until one is taken', async () => {
  const { state, after, probe, take } = scene();
  state.waiting = 3;
  // A minute without taking any, then a minute in which some were seen waiting.
  expect(await after(110)).toBe(0);
  expect(await after(10)).toBe(1);
  expect(await probe()).toEqual(['worker applications has taken no job for 60 s although some wait']);
  take();
  expect(await after(50)).toBe(0);
});

test('a job that has just come after a quiet night, or after five minutes without Redis, is none', async () => {
  const { state, after, take } = scene();
  expect(await after(3_600)).toBe(0);
  state.waiting = 1;
  expect(await after(10)).toBe(0);
  take();
  state.redisAway = true;
  expect(await after(300)).toBe(0);
  state.redisAway = false;
  expect(await after(50)).toBe(0);
  take();
  state.waiting = 0;
  expect(await after(300)).toBe(0);
});

test('neither is a worker that waits out an outage', async () => {
  const { state, after } = scene();
  state.waiting = 1;
  state.paused = true;
  expect(await after(600)).toBe(0);
});
