/**
 * The limiter's store: counts in Redis for all pods together, or in this pod's memory while Redis is away or slow.
 *
 * The request that finds Redis slow waits 50 ms at most; from then on no request asks Redis until a probe has found that it
 * takes writes again, on the server that failed: a demoted primary answers, but takes none.
 */
import { withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { isReady, type RedisClient } from '../platform/redis.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { LIMITER_PROBE_MS, LIMITER_TIMEOUT_MS } from './limits.ts';
import { LocalCounts, type Counted } from './local-counts.ts';

const KEY_PREFIX = 'partner-ingest:limit:';
/** Adds ARGV[1] to a count that ends ARGV[2] milliseconds after its beginning; gives the count and the milliseconds left. */
const COUNT = `
  local count = redis.call('INCRBY', KEYS[1], ARGV[1])
  if count == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return {count, redis.call('PTTL', KEYS[1])}
`;
type CountingRedis = RedisClient & {
  partnerIngestCount(key: string, by: number, windowMs: number): Promise<[count: number, ttl: number]>;
};

export interface LimiterStoreTools {
  /** Fails at once while it is away; how long a count may take is decided here. */
  readonly redis: RedisClient;
  readonly metrics: Pick<IngestMetrics, 'limiterDecisions' | 'limiterFallback'>;
  readonly log: Logger;
}

export class SharedLimiterStore {
  readonly #redis: CountingRedis;
  readonly #local = new LocalCounts();
  readonly #tools: LimiterStoreTools;
  #probe: NodeJS.Timeout | undefined;

  constructor(tools: LimiterStoreTools) {
    this.#tools = tools;
    tools.redis.defineCommand('partnerIngestCount', { numberOfKeys: 1, lua: COUNT });
    this.#redis = tools.redis as CountingRedis;
    this.#tools.metrics.limiterFallback.set(0);
  }

  /** Counts a request of `key`; the store's part of @fastify/rate-limit's contract. */
  incr(key: string, answer: (error: null, counted: Counted) => void, windowMs: number, max: number): void {
    this.#count(key, { by: 1, windowMs, max }, (counted) => answer(null, counted));
  }

  /** Adds `by` to the count of `key`, which must not stay above `max` in a window. Never rejects. */
  count(key: string, by: number, windowMs: number, max: number): Promise<Counted> {
    return new Promise((resolve) => this.#count(key, { by, windowMs, max }, resolve));
  }

  /** The plugin asks for a child for each route. Ours share this store: the routes' counts differ by `groupId` in the key. */
  child(): this {
    return this;
  }

  close(): void {
    clearInterval(this.#probe);
  }

  #count(key: string, asked: Asked, answer: (counted: Counted) => void): void {
    if (this.#probe !== undefined || !isReady(this.#redis)) {
      this.#fallBack(key);
      this.#countLocally(key, asked, answer);
      return;
    }
    let answered = false;
    const settle = (counted: Counted | undefined): void => {
      if (answered) return;
      answered = true;
      clearTimeout(timer);
      if (counted === undefined) {
        this.#fallBack(key);
        this.#countLocally(key, asked, answer);
        return;
      }
      this.#decided('redis', counted, asked);
      answer(counted);
    };
    // An answer that came while this process was busy is read first.
    const timer = setTimeout(() => setImmediate(settle, undefined), LIMITER_TIMEOUT_MS);
    this.#redis.partnerIngestCount(KEY_PREFIX + key, asked.by, asked.windowMs).then(
      ([current, ttl]) => settle({ current, ttl }),
      () => settle(undefined),
    );
  }

  #countLocally(key: string, asked: Asked, answer: (counted: Counted) => void): void {
    const counted = this.#local.add(key, asked.by, asked.windowMs);
    this.#decided('local', counted, asked);
    answer(counted);
  }

  #decided(store: 'redis' | 'local', { current }: Counted, { max }: Asked): void {
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

interface Asked {
  readonly by: number;
  readonly windowMs: number;
  readonly max: number;
}
