import { afterEach, expect, jest, test } from '@jest/globals';
import { systemClock as clock } from '../platform/clock.ts';
import { createLogger } from '../platform/log.ts';
import { createControllerMetrics } from '../telemetry/metrics.ts';
import { createRegistry } from '../telemetry/registry.ts';
import { PartnerLabels } from '../telemetry/partner-labels.ts';
import { watchBacklog } from './watch-backlog.ts';

afterEach(() => void jest.useRealTimers());

test('a new leader reads the backlog within a second, then every ten', async () => {
  jest.useFakeTimers();
  const stop = new AbortController();
  let [leads, reads] = [false, 0];
  const watching = watchBacklog(
    {
      clock,
      log: createLogger('test', 'silent'),
      leads: () => leads,
      read: async () => {
        reads += 1;
        return {
          records: { recorded: 0, account_created: 0, dead_lettered: 0 },
          oldestReceivedAt: { recorded: undefined, account_created: undefined },
          bounced: 0,
          onHold: 0,
        };
      },
      readPartners: async () => [],
      jobs: async () => ({ waiting: 0, active: 0, prioritized: 0 }),
      partnerLabels: new PartnerLabels(),
      metrics: createControllerMetrics(createRegistry('controller')),
    },
    stop.signal,
  );
  await jest.advanceTimersByTimeAsync(2_500);
  expect(reads).toBe(0);
  leads = true;
  await jest.advanceTimersByTimeAsync(1_000);
  expect(reads).toBe(1);
  await jest.advanceTimersByTimeAsync(9_000);
  expect(reads).toBe(1);
  await jest.advanceTimersByTimeAsync(1_000);
  expect(reads).toBe(2);
  stop.abort();
  await watching;
});
