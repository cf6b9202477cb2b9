/**
 * The pace of MAIL_PER_SECOND, kept by all processors together: each e-mail reserves the next free
 * moment in Redis. While Redis is away, each process keeps its share.
 */
import { redisName, type KnownInstallation } from '../installation/installation.ts';
import type { Clock } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { RedisClient } from '../platform/stores/redis.ts';

/** After this, the process keeps the pace on its own for a second. */
export const PACE_TIMEOUT_MS = 100;
const PACE_ALONE_MS = 1_000;
/** With one e-mail a second, some sixty processes wait so long for each other. */
const PACE_LONGEST_WAIT_MS = 60_000;

const KEY = 'mail-pace';
const SECOND_MS = 1_000;
/**
 * Times are whole microseconds of Redis' clock. A moment beyond the longest wait comes from a clock
 * that was ahead before a failover. With `1` as the third argument, of a test, a moment is reserved
 * only if it is now. After a live e-mail it must have been free for an interval, because another
 * process may still claim its next one. The last bit of the key says that a test's came last.
 */
const RESERVE = `
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local at = tonumber(redis.call('GET', KEYS[1]) or 0)
  local test = tonumber(ARGV[3])
  if at > now + tonumber(ARGV[2]) then at = 0 end
  local free = at
  if at % 2 == 0 then free = at + ARGV[1] end
  if test == 1 and free > now then return free - now end
  if at < now then at = now end
  local after = at + ARGV[1]
  redis.call('SET', KEYS[1], after - after % 2 + test, 'PX', ARGV[2] / 1000)
  return at - now
`;
type ReservingRedis = RedisClient & {
  partnerIngestReserveMail(
    key: string,
    everyUs: number,
    longestUs: number,
    onlyNow: 0 | 1,
  ): Promise<number>;
};

interface PaceOptions {
  readonly perSecond: number;
  /** Those that share the pace. */
  readonly processes: number;
  readonly redis: RedisClient;
  readonly installation: KnownInstallation;
  readonly clock: Pick<Clock, 'monotonicMs'>;
}

interface Asking {
  readonly onlyNow: boolean;
}

export class MailPace {
  readonly #options: PaceOptions;
  readonly #everyMs: number;
  #nextAtMs = 0;
  #aloneUntilMs = -Infinity;
  /** E-mails that wait for their moment in one process: enough to miss none. */
  readonly waitingAtMost: number;

  constructor(options: PaceOptions) {
    this.#options = options;
    this.#everyMs = SECOND_MS / options.perSecond;
    this.waitingAtMost = Math.ceil(options.perSecond / 10);
    const command = { lua: RESERVE, numberOfKeys: 1 };
    options.redis.defineCommand('partnerIngestReserveMail', command);
  }

  /** Reserves a moment; returns the milliseconds until then. Never rejects. */
  reserve(): Promise<number> {
    return this.#ask({ onlyNow: false });
  }

  /**
   * Reserves a moment for a test's e-mail only if one is free now. Returns 0, or the milliseconds
   * until one may be, of which none is reserved. Never rejects.
   */
  reserveNow(): Promise<number> {
    return this.#ask({ onlyNow: true });
  }

  async #ask(how: Asking): Promise<number> {
    const { redis, clock, installation } = this.#options;
    const { id } = installation;
    if (id !== undefined && clock.monotonicMs() >= this.#aloneUntilMs) {
      const asked = (redis as ReservingRedis).partnerIngestReserveMail(
        redisName(id, KEY),
        Math.ceil(this.#everyMs * 1_000),
        PACE_LONGEST_WAIT_MS * 1_000,
        how.onlyNow ? 1 : 0,
      );
      const waitUs = await withDeadline(asked, PACE_TIMEOUT_MS, 'the pace').catch(() => undefined);
      if (waitUs !== undefined) return waitUs / 1_000;
    }
    return this.#reserveAlone(how);
  }

  #reserveAlone({ onlyNow }: Asking): number {
    const { clock, processes } = this.#options;
    const nowMs = clock.monotonicMs();
    if (nowMs >= this.#aloneUntilMs) this.#aloneUntilMs = nowMs + PACE_ALONE_MS;
    const atMs = Math.max(nowMs, this.#nextAtMs);
    if (onlyNow && atMs > nowMs) return atMs - nowMs;
    this.#nextAtMs = atMs + this.#everyMs * processes;
    return atMs - nowMs;
  }
}
