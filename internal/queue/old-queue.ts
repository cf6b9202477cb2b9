/**
 * Removes the queue of versions whose names in Redis had no id. The records of its jobs are found
 * by `dueAt`. This file goes a version later.
 */
import { Queue } from 'bullmq';
import type { RedisClient } from '../platform/stores/redis.ts';
import { QUEUE } from './job.ts';

const PREFIX = '{partner-ingest}';
const key = (name: string): string => `${PREFIX}:${QUEUE}:${name}`;
/** Looks in a row without an older processor, which keeps a key of 5 s. */
const QUIET_LOOKS = 5;
/** Jobs that one script removes; at most 100,000 retries are there. */
const REMOVED_TOGETHER = 1_000;

export class OldQueue {
  readonly #redis: RedisClient;
  #quiet = 0;

  constructor(redis: RedisClient) {
    this.#redis = redis;
  }

  /** Removes the queue once several looks in a row found no processor of it. */
  async look(): Promise<void> {
    const [isThere, isUsed] = await Promise.all([
      this.#redis.exists(key('meta'), key('wait'), key('delayed')),
      this.#redis.exists(key('stalled-check')),
    ]);
    this.#quiet = isThere === 0 || isUsed === 1 ? 0 : this.#quiet + 1;
    if (this.#quiet < QUIET_LOOKS) return;
    const queue = new Queue(QUEUE, {
      connection: this.#redis,
      prefix: PREFIX,
      skipVersionCheck: true,
      skipMetasUpdate: true,
    });
    queue.on('error', () => {});
    try {
      await queue.obliterate({ force: true, count: REMOVED_TOGETHER });
      await this.#redis.del(key('meta'));
    } finally {
      await queue.close();
    }
  }
}
