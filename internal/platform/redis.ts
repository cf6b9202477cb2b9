/** Redis clients for the three uses we have, each bounded in the way its use needs. */
import { Redis } from 'ioredis';
import type { Logger } from './log.ts';

/** Reconnects quickly and for ever: 50 ms, 100 ms, … 500 ms, jittered so that pods do not come back in step. */
const RETRY_STEP_MS = 50;
const RETRY_CAP_MS = 500;
const CONNECT_TIMEOUT_MS = 1_000;

/**
 * What the connection is for:
 * - `commands`: fails at once while Redis is away and gives up on an answer after `commandTimeoutMs`;
 *   with `autoPipeline`, commands of one turn of the event loop share a round trip (not for BullMQ's own scripts);
 * - `worker`: waits for ever, as BullMQ's blocking reads need;
 * - `subscriber`: waits for ever and subscribes again after a reconnect.
 */
export type RedisUse =
  | { readonly for: 'commands'; readonly commandTimeoutMs: number; readonly autoPipeline?: true }
  | { readonly for: 'worker' | 'subscriber' };

export function createRedis(url: string, use: RedisUse, log: Logger): Redis {
  const shared = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    retryStrategy: (times: number) => Math.min(times * RETRY_STEP_MS, RETRY_CAP_MS) * (0.8 + 0.4 * Math.random()),
  };
  const redis =
    use.for === 'commands'
      ? new Redis(url, {
          ...shared,
          enableOfflineQueue: false,
          enableAutoPipelining: use.autoPipeline === true,
          commandTimeout: use.commandTimeoutMs,
          maxRetriesPerRequest: 0,
        })
      : new Redis(url, { ...shared, maxRetriesPerRequest: null });
  const { hostname, port } = new URL(url);
  const reason = `Redis does not answer at ${hostname}:${port === '' ? '6379' : port}: check that it runs there, and REDIS_URL`;
  let away = false;
  // Without a listener an outage would be an uncaught exception; it is told once, not for every attempt.
  redis.on('error', (error) => {
    if (!away) log.warn({ err: error, use: use.for, reason }, 'redis is away');
    away = true;
  });
  redis.on('ready', () => {
    if (away) log.info({ use: use.for }, 'redis is back');
    away = false;
  });
  return redis;
}
