/**
 * The pace of MAIL_PER_SECOND, kept by all processors together: each e-mail reserves the next free
 * moment in Redis. While Redis is away, each process keeps its share.
 */
import type { Clock } from '../platform/clock.ts';
import { withDeadline } from '../platform/deadline.ts';
import type { RedisClient } from '../platform/redis.ts';
import { PACE_ALONE_MS, PACE_LONGEST_WAIT_MS, PACE_TIMEOUT_MS } from './limits.ts';

const KEY = 'partner-ingest:mail-pace';
const SECOND_MS = 1_000;
/**
 * Times are whole microseconds of Redis' clock. A moment beyond the longest wait comes from a clock
 * that was ahead before a failover.
 */
const RESERVE = `
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local at = tonumber(redis.call('GET', KEYS[1]) or 0)
  if at < now or at > now + tonumber(ARGV[2]) then at = now end
  redis.call('SET', KEYS[1], at + ARGV[1], 'PX', ARGV[2] / 1000)
  return at - now
`;
type ReservingRedis = RedisClient & {
  partnerIngestReserveMail(key: string, everyUs: number, longestUs: number): Promise<number>;
};

export class MailPace {
  readonly #everyMs: number;
  readonly #processes: number;
  readonly #redis: ReservingRedis;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  #nextAtMs = 0;
  #aloneUntilMs = -Infinity;
  /** E-mails that wait for their moment in one process: enough to miss none. */
  readonly waitingAtMost: number;

  constructor(options: {
    readonly perSecond: number;
    /** Those that share the pace. */
    readonly processes: number;
    readonly redis: RedisClient;
    readonly clock: Pick<Clock, 'monotonicMs'>;
  }) {
    const { perSecond, processes, redis, clock } = options;
    this.#everyMs = SECOND_MS / perSecond;
    this.#processes = processes;
    redis.defineCommand('partnerIngestReserveMail', { lua: RESERVE, numberOfKeys: 1 });
    this.#redis = redis as ReservingRedis;
    this.#clock = clock;
    this.waitingAtMost = Math.ceil(perSecond / 10);
  }

  /** Reserves a moment; returns the milliseconds until then. Never rejects. */
  async reserve(): Promise<number> {
    if (this.#clock.monotonicMs() >= this.#aloneUntilMs) {
      const asked = this.#redis.partnerIngestReserveMail(
        KEY,
        Math.ceil(this.#everyMs * 1_000),
        PACE_LONGEST_WAIT_MS * 1_000,
      );
      const waitUs = await withDeadline(asked, PACE_TIMEOUT_MS, 'the pace').catch(() => undefined);
      if (waitUs !== undefined) return waitUs / 1_000;
    }
    return this.#reserveAlone();
  }

  #reserveAlone(): number {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs >= this.#aloneUntilMs) this.#aloneUntilMs = nowMs + PACE_ALONE_MS;
    const atMs = Math.max(nowMs, this.#nextAtMs);
    this.#nextAtMs = atMs + this.#everyMs * this.#processes;
    return atMs - nowMs;
  }
}
