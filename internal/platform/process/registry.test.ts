import { expect, jest, test } from '@jest/globals';
import { createProcessRegistry } from './registry.ts';

test('nothing is measured between two scrapes by a timer', async () => {
  const timers = jest.spyOn(globalThis, 'setInterval');
  const registry = createProcessRegistry('test');
  const periods = timers.mock.calls.map(([, periodMs = 0]) => periodMs);
  expect(Math.min(Infinity, ...periods)).toBeGreaterThan(86_400_000);
  expect(await registry.metrics()).toContain('nodejs_eventloop_lag_p99_seconds');
});
