/**
 * The limiter's store: counts in Redis for all pods together, or in this pod's memory while Redis is away or slow.
 *
 * The request that finds Redis slow waits 50 ms at most; from then on no request asks Redis until a probe has found that it
 * takes writes again, on the server that failed: a demoted primary answers, but takes none.
 */
import LocalStore from '@fastify/rate-limit/store/LocalStore.js';
import RedisStore from '@fastify/rate-limit/store/RedisStore.js';
import { withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { isReady, type RedisClient } from '../platform/redis.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { LIMITER_LOCAL_ADDRESSES, LIMITER_PROBE_MS, LIMITER_TIMEOUT_MS } from './limits.ts';

type Answer = (error: Error | null, result?: { current: number; ttl: number }) => void;

const KEY_PREFIX = 'partner-ingest:limit:';

export interface LimiterStoreTools {
  /** Fails at once while it is away; how long a count may take is decided here. */
  readonly redis: RedisClient;
  readonly metrics: Pick<IngestMetrics, 'limiterDecisions' | 'limiterFallback'>;
  readonly log: Logger;
}

export class SharedLimiterStore {
  readonly #shared: RedisStore;
  readonly #local = new LocalStore(false, false, LIMITER_LOCAL_ADDRESSES);
  readonly #tools: LimiterStoreTools;
  #probe: NodeJS.Timeout | undefined;

  constructor(tools: LimiterStoreTools) {
    this.#tools = tools;
    this.#shared = new RedisStore(false, false, tools.redis, KEY_PREFIX);
    this.#tools.metrics.limiterFallback.set(0);
  }

  /** Counts a request of `key`; the store's part of @fastify/rate-limit's contract. */
  incr(key: string, answer: Answer, windowMs: number, max: number): void {
    if (this.#probe !== undefined || !isReady(this.#tools.redis)) {
      this.#fallBack(key);
      this.#countLocally(key, answer, windowMs, max);
      return;
    }
    let answered = false;
    const settle = (result: { current: number; ttl: number } | null): void => {
      if (answered) return;
      answered = true;
      clearTimeout(timer);
      if (result === null) {
        this.#fallBack(key);
        this.#countLocally(key, answer, windowMs, max);
        return;
      }
      this.#decided('redis', result.current, max);
      answer(null, result);
    };
    // An answer that came while this process was busy is read first.
    const timer = setTimeout(() => setImmediate(settle, null), LIMITER_TIMEOUT_MS);
    this.#shared.incr(key, (error, result) => settle(error === null ? result : null), windowMs, max);
  }

  /** The plugin asks for a child for each route. Ours share this store: the routes' counts differ by `groupId` in the key. */
  child(): this {
    return this;
  }

  close(): void {
    clearInterval(this.#probe);
  }

  #countLocally(key: string, answer: Answer, windowMs: number, max: number): void {
    this.#local.incr(
      key,
      (_, result) => {
        this.#decided('local', result.current, max);
        answer(null, result);
      },
      windowMs,
      max,
    );
  }

  #decided(store: 'redis' | 'local', current: number, max: number): void {
    this.#tools.metrics.limiterDecisions.inc({ store, decision: current > max ? 'refused' : 'served' });
  }

  /** `key` is one that Redis did not count. */
  #fallBack(key: string): void {
    if (this.#probe !== undefined) return;
    const { redis, metrics, log } = this.#tools;
    metrics.limiterFallback.set(1);
    log.warn('limiting on this process alone: redis is away or slow');
    // In a Cluster the braces lead to the server that has the key itself.
    const probed = `{${KEY_PREFIX}${key}}`;
    this.#probe = setInterval(() => {
      if (!isReady(redis)) return;
      withDeadline(redis.set(probed, '', 'PX', LIMITER_PROBE_MS), LIMITER_TIMEOUT_MS, 'probe').then(
        () => this.#recover(),
        () => {},
      );
    }, LIMITER_PROBE_MS);
  }

  #recover(): void {
    if (this.#probe === undefined) return;
    clearInterval(this.#probe);
    this.#probe = undefined;
    this.#tools.metrics.limiterFallback.set(0);
    this.#tools.log.info('limiting together with the other processes again');
  }
}
