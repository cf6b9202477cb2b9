import { afterEach, expect, jest, test } from '@jest/globals';
import { createLogger } from '../platform/process/log.ts';
import { OutageGate, PROBE_DEADLINE_MS } from './outage-gate.ts';

afterEach(() => void jest.useRealTimers());

test('the worker pauses until a probe succeeds; a probe that throws or hangs has failed', async () => {
  jest.useFakeTimers();
  const doings: string[] = [];
  const answers = [
    () => Promise.reject(new Error('x')),
    () => new Promise<boolean>(() => {}),
    () => Promise.resolve(false),
    () => Promise.resolve(true),
  ];
  const gate = new OutageGate({
    takesWrites: () => answers.shift()!(),
    log: createLogger('test', 'silent'),
    metrics: {
      workerPaused: {
        inc: () => {},
        set: (_labels, value) => void doings.push(`paused=${value}`),
        reset: () => {},
        remove: () => {},
      },
    },
  });
  gate.add({
    pause: () => void doings.push('pause'),
    resume: () => void doings.push('resume'),
  });
  gate.wait();
  gate.wait();
  await jest.advanceTimersByTimeAsync(PROBE_DEADLINE_MS);
  expect(doings.splice(0)).toEqual(['paused=0', 'paused=1', 'pause']);
  await jest.advanceTimersByTimeAsync(10_000);
  expect({ answers, doings }).toEqual({
    answers: [],
    doings: ['resume', 'paused=0'],
  });
  gate.close();
});
