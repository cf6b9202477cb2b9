/** Events beyond the allowance; test/kubernetes has their form. */
import type { CoreV1Api } from '@kubernetes/client-node';
import { expect, test } from '@jest/globals';
import { inTurn } from '../partner/kept-findings.ts';
import type { Problem } from '../partner/key-secret.ts';
import { systemClock } from '../platform/process/clock.ts';
import { createLogger } from '../platform/process/log.ts';
import { createRegistry } from '../platform/process/registry.ts';
import { createControllerMetrics } from '../telemetry/metrics.ts';
import { SecretEvents } from './secret-events.ts';

const problemOf = (partnerId: string, name: string): Problem => ({
  source: { namespace: 'keys', name, uid: name },
  partnerId,
  code: 'not_a_key',
  message: 'entry "key-1" is no API key',
});

test('one partner with 300 bad Secrets hides neither those of others nor its own last ones', async () => {
  const problems = [
    ...Array.from({ length: 300 }, (_none, at) => problemOf('many', `many-${at}`)),
    ...Array.from({ length: 5 }, (_none, at) => problemOf(`other-${at}`, `other-${at}`)),
  ];
  let nowMs = 0;
  const told: string[] = [];
  const core = {
    createNamespacedEvent: ({ body }: { body: { involvedObject: { name: string } } }) =>
      Promise.resolve(told.push(body.involvedObject.name)),
  } as unknown as CoreV1Api;
  const events = new SecretEvents('controller-a', {
    core,
    clock: { ...systemClock, monotonicMs: () => nowMs },
    log: createLogger('test', 'silent'),
    metrics: createControllerMetrics(createRegistry('controller')),
  });
  const minute = async (): Promise<void> => {
    events.tell(inTurn(problems));
    await events.settled();
    nowMs += 60_000;
  };
  await minute();
  expect(told).toEqual(expect.arrayContaining(['other-0', 'other-4', 'many-0']));
  for (let minutes = 1; minutes < 40; minutes += 1) await minute();
  expect(new Set(told).size).toBe(305);
});
