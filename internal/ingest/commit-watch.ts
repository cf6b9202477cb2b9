/**
 * Tells a process that alone cannot commit from one whose database is away for all: the one should be restarted, the other
 * must not be. Who commits leaves a mark in Redis that expires soon, so a mark that is there is somebody else's to a
 * process that has not committed for longer. It compares no clocks. Without Redis nobody knows, and all are live.
 *
 * It also logs each outage once when it begins and once when it ends.
 */
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import type { RedisClient } from '../platform/redis.ts';
import type { CommitResult } from '../submission/commit-entry.ts';
import { ALONE_AFTER_MS, COMMIT_MARK_EVERY_MS, COMMIT_MARK_MS, OUTAGE_LINES_EVERY_MS } from './limits.ts';

type OutageLog = Pick<Logger, 'warn' | 'info'>;

const COMMIT_MARK = 'partner-ingest:committed';

export class CommitWatch {
  readonly #redis: RedisClient;
  readonly #clock: Clock;
  readonly #log: OutageLog;
  #markAt = -Infinity;
  /** The first and the latest failure since the last commit. */
  #failing: { readonly since: number; latest: number } | undefined;
  /** When the outage began whose beginning is logged and whose end is not. */
  #loggedSince: number | undefined;
  #logAt = -Infinity;

  constructor(tools: { readonly redis: RedisClient; readonly clock: Clock; readonly log: OutageLog }) {
    this.#redis = tools.redis;
    this.#clock = tools.clock;
    this.#log = tools.log;
  }

  /** Gives the result on. */
  async see(committing: Promise<CommitResult>): Promise<CommitResult> {
    const result = await committing;
    this.#note(result);
    return result;
  }

  #note(result: CommitResult): void {
    // A record that was there before says nothing of commits: a primary without its majority finds it, too.
    if (typeof result !== 'string') return;
    const now = this.#clock.monotonicMs();
    if (result !== 'stored') {
      this.#failing = { since: this.#failing?.since ?? now, latest: now };
      this.#logAway(result, now);
      return;
    }
    this.#failing = undefined;
    this.#logBack(now);
    if (now < this.#markAt) return;
    this.#markAt = now + COMMIT_MARK_EVERY_MS;
    this.#redis.set(COMMIT_MARK, '1', 'PX', COMMIT_MARK_MS).catch(() => {});
  }

  /** A database that takes every second write must not fill the log: an outage soon after the last one is not logged yet. */
  #logAway(result: string, now: number): void {
    if (this.#loggedSince !== undefined || now < this.#logAt) return;
    this.#loggedSince = now;
    this.#logAt = now + OUTAGE_LINES_EVERY_MS;
    this.#log.warn({ result }, 'mongodb is away, slow or refuses: requests are not recorded');
  }

  #logBack(now: number): void {
    if (this.#loggedSince === undefined) return;
    const seconds = Math.round((now - this.#loggedSince) / 1_000);
    this.#loggedSince = undefined;
    this.#log.info({ seconds }, 'mongodb is back: requests are recorded again');
  }

  /** Why the process is not live; empty unless it goes on failing while others commit. */
  readonly faults = async (): Promise<string[]> => {
    const now = this.#clock.monotonicMs();
    const { since, latest } = this.#failing ?? { since: now, latest: now };
    // A failure of long ago says nothing of now: a process that nobody sends to is live.
    if (now - since < ALONE_AFTER_MS || now - latest > COMMIT_MARK_MS) return [];
    const others = await this.#redis.exists(COMMIT_MARK).catch(() => 0);
    return others > 0 ? ['no commit succeeds here, while those of other processes do'] : [];
  };
}
