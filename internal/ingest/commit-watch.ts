/**
 * Tells a process that alone cannot commit from one whose database is away for all: the one should be restarted, the other
 * must not be. Who commits leaves a mark in Redis that expires soon, so a mark that is there is somebody else's to a
 * process that has not committed for longer. It compares no clocks. Without Redis nobody knows, and all are live.
 */
import type { Clock } from '../platform/clock.ts';
import type { RedisClient } from '../platform/redis.ts';
import type { CommitResult } from '../submission/commit-entry.ts';
import { ALONE_AFTER_MS, COMMIT_MARK_EVERY_MS, COMMIT_MARK_MS } from './limits.ts';

const COMMIT_MARK = 'partner-ingest:committed';

export class CommitWatch {
  readonly #redis: RedisClient;
  readonly #clock: Clock;
  #markAt = -Infinity;
  /** The first and the latest failure since the last commit. */
  #failing: { readonly since: number; latest: number } | undefined;

  constructor(redis: RedisClient, clock: Clock) {
    this.#redis = redis;
    this.#clock = clock;
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
      return;
    }
    this.#failing = undefined;
    if (now < this.#markAt) return;
    this.#markAt = now + COMMIT_MARK_EVERY_MS;
    this.#redis.set(COMMIT_MARK, '1', 'PX', COMMIT_MARK_MS).catch(() => {});
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
