/**
 * The limiter's store: counts in Redis for all pods together, or in this pod's memory while Redis
 * is away or slow.
 *
 * The request that finds Redis slow waits 50 ms at most; from then on no request asks Redis until a
 * probe has found that it takes writes again, on the server that failed: a demoted primary answers,
 * but takes none.
 */
import { Cluster } from 'ioredis';
import { withDeadline } from '../platform/deadline.ts';
import { newDispatcher, type Dispatcher } from '../platform/dispatcher.ts';
import type { Logger } from '../platform/log.ts';
import { isReady, type RedisClient } from '../platform/redis.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { LIMITER_PROBE_MS, LIMITER_TIMEOUT_MS } from './limits.ts';
import { LocalCounts, type Counted } from './local-counts.ts';

const KEY_PREFIX = 'partner-ingest:limit:';
/** Requests counted in one script, which keeps the server from all others: some 0.2 ms. */
const COUNTS_TOGETHER = 256;
/**
 * Adds to each of the KEYS what its pair in ARGV says, to a count that ends so many milliseconds
 * after its beginning; gives each count and the milliseconds left.
 */
const COUNT = `
  local counted = {}
  for i, key in ipairs(KEYS) do
    local by = ARGV[2 * i - 1]
    local count = redis.call('INCRBY', key, by)
    if count == tonumber(by) then redis.call('PEXPIRE', key, ARGV[2 * i]) end
    counted[2 * i - 1] = count
    counted[2 * i] = redis.call('PTTL', key)
  end
  return counted
`;
type CountingRedis = RedisClient & {
  partnerIngestCount(
    keys: number,
    ...keysAndPairs: readonly (string | number)[]
  ): Promise<number[]>;
};

/** A request to be counted. */
interface Count {
  readonly key: string;
  readonly by: number;
  readonly windowMs: number;
  readonly max: number;
  readonly answer: (counted: Counted) => void;
}

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
  readonly #waiting: Count[] = [];
  /** Those that come while Redis counts others are counted together after them. */
  readonly #dispatcher: Dispatcher<Count>;
  #probe: NodeJS.Timeout | undefined;

  constructor(tools: LimiterStoreTools) {
    this.#tools = tools;
    this.#dispatcher = newDispatcher(
      1,
      () => this.#waiting.splice(0, COUNTS_TOGETHER),
      (counts) => this.#countTogether(counts),
    );
    tools.redis.defineCommand('partnerIngestCount', { lua: COUNT });
    this.#redis = tools.redis as CountingRedis;
    this.#tools.metrics.limiterFallback.set(0);
  }

  /** Counts a request of `key`; the store's part of @fastify/rate-limit's contract. */
  incr(
    key: string,
    answer: (error: null, counted: Counted) => void,
    windowMs: number,
    max: number,
  ): void {
    this.#count({ key, by: 1, windowMs, max, answer: (counted) => answer(null, counted) });
  }

  /**
   * Adds `by` to the count of `key`, which must not stay above `max` in a window. Never rejects.
   */
  count(key: string, by: number, windowMs: number, max: number): Promise<Counted> {
    return new Promise((answer) => this.#count({ key, by, windowMs, max, answer }));
  }

  /**
   * The plugin asks for a child for each route. Ours share this store: the routes' counts differ by
   * `groupId` in the key.
   */
  child(): this {
    return this;
  }

  close(): void {
    clearInterval(this.#probe);
  }

  #count(count: Count): void {
    this.#waiting.push(count);
    this.#dispatcher.plan();
  }

  /** Never rejects, and ends within `LIMITER_TIMEOUT_MS`. */
  async #countTogether(counts: readonly Count[]): Promise<void> {
    if (this.#probe !== undefined || !isReady(this.#redis)) {
      this.#countLocally(counts);
      return;
    }
    // In a Cluster each key has a slot of its own, and a script has keys of one slot only.
    const scripts = this.#redis instanceof Cluster ? counts.map((count) => [count]) : [counts];
    await Promise.all(scripts.map((together) => this.#runScript(together)));
  }

  #runScript(counts: readonly Count[]): Promise<void> {
    const keys = counts.map(({ key }) => KEY_PREFIX + key);
    const pairs = counts.flatMap(({ by, windowMs }) => [by, windowMs]);
    return new Promise((resolve) => {
      let ended = false;
      const end = (reply: readonly number[] | undefined): void => {
        if (ended) return;
        ended = true;
        clearTimeout(timer);
        if (reply === undefined) this.#countLocally(counts);
        else {
          for (const [index, count] of counts.entries()) {
            this.#answer('redis', count, {
              current: reply[2 * index]!,
              ttl: reply[2 * index + 1]!,
            });
          }
        }
        resolve();
      };
      // An answer that came while this process was busy is read first.
      const timer = setTimeout(() => setImmediate(end, undefined), LIMITER_TIMEOUT_MS);
      this.#redis
        .partnerIngestCount(keys.length, ...keys, ...pairs)
        .then(end, () => end(undefined));
    });
  }

  /** `counts` are what Redis did not count. */
  #countLocally(counts: readonly Count[]): void {
    this.#fallBack(counts[0]!.key);
    for (const count of counts)
      this.#answer('local', count, this.#local.add(count.key, count.by, count.windowMs));
  }

  #answer(store: 'redis' | 'local', { max, answer }: Count, counted: Counted): void {
    this.#tools.metrics.limiterDecisions.inc({
      store,
      decision: counted.current > max ? 'refused' : 'served',
    });
    answer(counted);
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
