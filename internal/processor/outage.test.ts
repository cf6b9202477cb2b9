import { afterEach, expect, jest, test } from '@jest/globals';
import { createLogger } from '../platform/log.ts';
import { PROBE_DEADLINE_MS } from './limits.ts';
import { OutageGate } from './outage.ts';

const gates: OutageGate[] = [];

/** A gate that records its actions in order. */
function newGate(probe: () => Promise<boolean>) {
  const doings: string[] = [];
  const gate = new OutageGate({
    workers: [{ pause: () => void doings.push('pause'), resume: () => void doings.push('resume') }],
    probe,
    log: createLogger('test', 'silent'),
    paused: { set: (value) => void doings.push(`paused=${value}`) },
  });
  gates.push(gate);
  return { gate, doings };
}

afterEach(() => {
  for (const gate of gates.splice(0)) gate.close();
  jest.useRealTimers();
});

test('the worker rests until the probe succeeds; calls meanwhile change nothing', async () => {
  jest.useFakeTimers();
  const answers = [false, false, true];
  let probes = 0;
  const { gate, doings } = newGate(() => {
    probes += 1;
    return Promise.resolve(answers.shift() === true);
  });
  gate.wait();
  gate.wait();
  await jest.advanceTimersByTimeAsync(100);
  gate.wait();
  expect(doings).toEqual(['paused=1', 'pause']);
  await jest.advanceTimersByTimeAsync(5_000);
  expect(doings).toEqual(['paused=1', 'pause', 'resume', 'paused=0']);
  expect(probes).toBe(3);
  gate.wait();
  expect(doings.slice(4)).toEqual(['paused=1', 'pause']);
});

test('a probe that throws or hangs counts as "no"', async () => {
  jest.useFakeTimers();
  const answers = [
    () => Promise.reject(new Error('x')),
    () => new Promise<boolean>(() => {}),
    () => Promise.resolve(true),
  ];
  const { gate, doings } = newGate(() => answers.shift()!());
  gate.wait();
  await jest.advanceTimersByTimeAsync(PROBE_DEADLINE_MS + 2_000);
  expect(answers).toEqual([]);
  expect(doings.at(-1)).toBe('paused=0');
});
