/**
 * What is used of BullMQ beyond its documentation. If a version changes it,
 * `test/integration/consumer.test.ts` fails.
 */
import { createRedisBackend } from 'bullmq';

/** With delayed jobs BullMQ would wait up to ten seconds for an answer. */
export const backendWaiting =
  (seconds: number): typeof createRedisBackend =>
  (...given) =>
    Object.defineProperty(createRedisBackend(...given), 'maximumBlockTimeout', { value: seconds });
