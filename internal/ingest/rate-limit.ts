/**
 * The limiter's store: counts in Redis for all pods, or in memory while Redis is away or slow.
 *
 * After a call that takes 50 ms, no request asks Redis until a probe succeeds. The probe writes,
 * because a demoted primary still answers reads.
 */
import { Cluster } from 'ioredis';
import { redisName, type KnownInstallation } from '../installation/installation.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { newBatcher, type Batcher } from '../platform/stores/mongo-joined.ts';
import type { Fault } from '../platform/process/fault.ts';
import type { Logger } from '../platform/process/log.ts';
import type { RedisClient } from '../platform/stores/redis.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { LIMITER_PROBE_MS } from './bounds.ts';

/** After this, the pod counts on its own. */
const LIMITER_TIMEOUT_MS = 50;
/** Further keys replace the least recently seen. */
const LIMITER_LOCAL_KEYS = 20_000;

const ALONE: Fault = {
  code: 'limits_alone',
  words: 'limiting on this process alone: redis is away or slow',
};
/** A script of this many keys blocks the server for 0.2 ms. */
const COUNTS_TOGETHER = 256;
/** Adds to each key's count; returns counts and milliseconds left. */
const COUNT = `
  local counted = {}
  for i, key in ipairs(KEYS) do
    local count = redis.call('INCR', key)
    if count == 1 then redis.call('PEXPIRE', key, ARGV[i]) end
    counted[2 * i - 1] = count
    counted[2 * i] = redis.call('PTTL', key)
  end
  return counted
`;
type CountingRedis = RedisClient & {
  partnerIngestCount(
    keys: number,
    ...keysAndWindows: readonly (string | number)[]
  ): Promise<number[]>;
};

interface WindowCount {
  readonly current: number;
  readonly ttl: number;
}

interface Count {
  readonly key: string;
  readonly windowMs: number;
  readonly max: number;
  readonly answer: (counted: WindowCount) => void;
}

interface LimiterStoreTools {
  /** Its commands must fail at once during an outage. */
  readonly redis: RedisClient;
  /** Until its id is known, the process counts on its own. */
  readonly installation: KnownInstallation;
  /** How many processes share a limit while each counts alone. */
  readonly pods: { readonly count: number };
  readonly metrics: Pick<IngestMetrics, 'limiterDecisions' | 'limiterFallback'>;
  readonly log: Logger;
}

export class SharedLimiterStore {
  readonly #redis: CountingRedis;
  readonly #local = new LocalCounts();
  readonly #tools: LimiterStoreTools;
  readonly #waiting: Count[] = [];
  /** Requests that come during a call share the next one. */
  readonly #batcher: Batcher<Count>;
  #probe: NodeJS.Timeout | undefined;

  constructor(tools: LimiterStoreTools) {
    this.#tools = tools;
    this.#batcher = newBatcher(
      1,
      () => this.#waiting.splice(0, COUNTS_TOGETHER),
      (counts) => this.#countTogether(counts),
    );
    tools.redis.defineCommand('partnerIngestCount', { lua: COUNT });
    this.#redis = tools.redis as CountingRedis;
    this.#tools.metrics.limiterFallback.set(0);
  }

  incr(
    key: string,
    answer: (error: null, counted: WindowCount) => void,
    windowMs: number,
    max: number,
  ): void {
    this.#count({ key, windowMs, max, answer: (counted) => answer(null, counted) });
  }

  count(key: string, windowMs: number, max: number): Promise<WindowCount> {
    return new Promise((answer) => this.#count({ key, windowMs, max, answer }));
  }

  /** The keys of our routes differ by `groupId`, so one store is enough. */
  child(): this {
    return this;
  }

  readonly warnings = (): readonly Fault[] => (this.#probe === undefined ? [] : [ALONE]);

  close(): void {
    clearInterval(this.#probe);
  }

  #count(count: Count): void {
    this.#waiting.push(count);
    this.#batcher.plan();
  }

  async #countTogether(counts: readonly Count[]): Promise<void> {
    const { id } = this.#tools.installation;
    if (id === undefined) return this.#answerLocally(counts);
    if (this.#probe !== undefined || this.#redis.status !== 'ready')
      return this.#countLocally(id, counts);
    // In a Cluster, a script may use keys of one slot only.
    const scripts = this.#redis instanceof Cluster ? counts.map((count) => [count]) : [counts];
    await Promise.all(scripts.map((together) => this.#runScript(id, together)));
  }

  #runScript(id: string, counts: readonly Count[]): Promise<void> {
    const keys = counts.map(({ key }) => nameOf(id, key));
    const windows = counts.map(({ windowMs }) => windowMs);
    return new Promise((resolve) => {
      let ended = false;
      const end = (reply: readonly number[] | undefined): void => {
        if (ended) return;
        ended = true;
        clearTimeout(timer);
        if (reply === undefined) this.#countLocally(id, counts);
        else {
          const at = (index: number): WindowCount => ({
            current: reply[2 * index]!,
            ttl: reply[2 * index + 1]!,
          });
          this.#answer(
            'redis',
            counts,
            counts.map((_, index) => at(index)),
          );
        }
        resolve();
      };
      // A reply that arrived while this process was busy still counts.
      const timer = setTimeout(() => setImmediate(end, undefined), LIMITER_TIMEOUT_MS);
      this.#redis
        .partnerIngestCount(keys.length, ...keys, ...windows)
        .then(end, () => end(undefined));
    });
  }

  #countLocally(id: string, counts: readonly Count[]): void {
    this.#fallBack(id, counts[0]!.key);
    this.#answerLocally(counts);
  }

  #answerLocally(counts: readonly Count[]): void {
    const counted = counts.map(({ key, windowMs, max }) => {
      const { current, ttl } = this.#local.add(key, windowMs);
      return { current: this.#sharedBy(current, max), ttl };
    });
    this.#answer('local', counts, counted);
  }

  /** Each process counts its requests as if all had as many; one always passes. */
  #sharedBy(current: number, max: number): number {
    if (max === Infinity) return current;
    const shared = current * this.#tools.pods.count;
    return current === 1 ? Math.min(shared, max) : shared;
  }

  #answer(
    store: 'redis' | 'local',
    counts: readonly Count[],
    counted: readonly WindowCount[],
  ): void {
    const { limiterDecisions } = this.#tools.metrics;
    const refused = counts.filter(({ max }, index) => counted[index]!.current > max).length;
    if (refused > 0) limiterDecisions.inc({ store, decision: 'refused' }, refused);
    limiterDecisions.inc({ store, decision: 'served' }, counts.length - refused);
    for (const [index, { answer }] of counts.entries()) answer(counted[index]!);
  }

  #fallBack(id: string, key: string): void {
    if (this.#probe !== undefined) return;
    const { redis, metrics, log } = this.#tools;
    metrics.limiterFallback.set(1);
    log.warn(ALONE.words);
    // The braces select the key's own server in a Cluster.
    const probed = redisName(id, `probe:{${nameOf(id, key)}}`);
    this.#probe = setInterval(() => {
      if (redis.status !== 'ready') return;
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

const nameOf = (id: string, key: string): string => redisName(id, `limit:${key}`);

class LocalCounts {
  readonly #counts = new Map<string, { current: number; readonly endsAtMs: number }>();

  add(key: string, windowMs: number): WindowCount {
    const nowMs = performance.now();
    const known = this.#counts.get(key);
    const count =
      known !== undefined && known.endsAtMs > nowMs
        ? known
        : { current: 0, endsAtMs: nowMs + windowMs };
    count.current += 1;
    this.#counts.delete(key);
    this.#counts.set(key, count);
    for (const oldest of this.#counts.keys()) {
      if (this.#counts.size <= LIMITER_LOCAL_KEYS) break;
      this.#counts.delete(oldest);
    }
    return { current: count.current, ttl: count.endsAtMs - nowMs };
  }
}
