/**
 * The limiter's store: counts in Redis for all pods together, or in this pod's memory while Redis is away or slow.
 *
 * The request that finds Redis slow waits 50 ms at most; from then on nobody asks Redis until a probe of our own has
 * found it well again.
 */
import LocalStore from '@fastify/rate-limit/store/LocalStore.js';
import RedisStore from '@fastify/rate-limit/store/RedisStore.js';
import type { Redis } from 'ioredis';
import type { Logger } from '../platform/log.ts';
import { LIMITER_LOCAL_ADDRESSES, LIMITER_PROBE_MS } from './limits.ts';

type Answer = (error: Error | null, result?: { current: number; ttl: number }) => void;

const KEY_PREFIX = 'partner-ingest:limit:';

export interface LimiterMetrics {
  readonly limiterDecisions: { inc(labels: { store: string; decision: string }): void };
  readonly limiterFallback: { set(value: number): void };
}

export class SharedLimiterStore {
  readonly #shared: RedisStore;
  readonly #local = new LocalStore(false, false, LIMITER_LOCAL_ADDRESSES);
  readonly #redis: Redis;
  readonly #metrics: LimiterMetrics;
  readonly #log: Logger;
  #probe: NodeJS.Timeout | undefined;

  /** `redis` fails at once while it is away and gives up on a command after `LIMITER_TIMEOUT_MS`. */
  constructor(options: { readonly redis: Redis; readonly metrics: LimiterMetrics; readonly log: Logger }) {
    this.#redis = options.redis;
    this.#metrics = options.metrics;
    this.#log = options.log;
    this.#shared = new RedisStore(false, false, options.redis, KEY_PREFIX);
    this.#metrics.limiterFallback.set(0);
  }

  /** Counts a request of `key`; the store's part of @fastify/rate-limit's contract. */
  incr(key: string, answer: Answer, windowMs: number, max: number): void {
    if (this.#probe !== undefined || this.#redis.status !== 'ready') {
      if (this.#probe === undefined) this.#fallBack();
      this.#countLocally(key, answer, windowMs, max);
      return;
    }
    this.#shared.incr(
      key,
      (error, result) => {
        if (error === null && result !== null) {
          this.#decided('redis', result.current, max);
          answer(null, result);
          return;
        }
        this.#fallBack();
        this.#countLocally(key, answer, windowMs, max);
      },
      windowMs,
      max,
    );
  }

  /** The plugin makes a child for a route; there is one route and one count. */
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
    this.#metrics.limiterDecisions.inc({ store, decision: current > max ? 'refused' : 'served' });
  }

  #fallBack(): void {
    if (this.#probe !== undefined) return;
    this.#metrics.limiterFallback.set(1);
    this.#log.warn('limiting on this process alone: redis is away or slow');
    this.#probe = setInterval(() => {
      if (this.#redis.status !== 'ready') return;
      this.#redis.ping().then(
        () => this.#recover(),
        () => {},
      );
    }, LIMITER_PROBE_MS);
  }

  #recover(): void {
    if (this.#probe === undefined) return;
    clearInterval(this.#probe);
    this.#probe = undefined;
    this.#metrics.limiterFallback.set(0);
    this.#log.info('limiting together with the other processes again');
  }
}
