/** Sends jobs to Redis; processors find the records of lost jobs by `dueAt`. */
import { Queue } from 'bullmq';
import type { Probe } from '../platform/http/admin-server.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { createRedis, type RedisClient, type RedisTls } from '../platform/stores/redis.ts';
import type { Logger } from '../platform/process/log.ts';
import { inSpans } from '../platform/process/tracing.ts';
import { EndSender } from './ends.ts';
import {
  QUEUE,
  QUEUE_PREFIX,
  jobStates,
  jobsFor,
  queueSpan,
  type Hint,
  type Job,
  type JobState,
  type Retry,
} from './job.ts';

/** A late `addBulk` is harmless, because each record is claimed once. */
const ADD_DEADLINE_MS = 1_000;
/** Retries in Redis, about 60 MB; further ones are found by `dueAt`. */
const RETRIES_MOST = 100_000;
const COMMAND_TIMEOUT_MS = 500;
const CLOSE_DEADLINE_MS = 1_000;

export class HintSender {
  readonly #redis: RedisClient;
  readonly #queue: Queue;
  readonly ends: EndSender;

  constructor(options: {
    readonly redisUrl: string;
    readonly redisTls?: RedisTls;
    readonly log: Logger;
    readonly warnings?: Probe[];
  }) {
    const use = { commandTimeoutMs: COMMAND_TIMEOUT_MS };
    this.#redis = createRedis(options.redisUrl, use, options);
    this.#queue = new Queue(QUEUE, {
      connection: this.#redis,
      prefix: QUEUE_PREFIX,
      skipVersionCheck: true,
    });
    this.ends = new EndSender(this.#redis);
    this.#queue.on('error', () => {}); // createRedis already logs it.
  }

  get ready(): boolean {
    return this.#redis.status === 'ready';
  }

  /** Rejects at once while Redis is away. */
  async send(hints: readonly (Hint | Retry)[]): Promise<void> {
    const batch = hints.length > 1 ? { 'messaging.batch.message_count': hints.length } : {};
    const parents = hints.map(({ traceparent }) => traceparent);
    await inSpans(queueSpan('send', batch), parents, async (traceparents) => {
      if (!this.ready) throw new RedisAwayError('redis is not connected');
      const traced = hints.map((hint, index) => ({ ...hint, traceparent: traceparents[index] }));
      await withDeadline(this.#add(jobsFor(traced)), ADD_DEADLINE_MS, 'addBulk');
    });
  }

  async #add(jobs: readonly Job[]): Promise<void> {
    const retries = jobs.some(({ opts }) => opts.delay !== undefined);
    if (retries && (await this.#queue.getDelayedCount()) >= RETRIES_MOST)
      throw new Error('too many retries wait in redis');
    await this.#queue.addBulk([...jobs]);
  }

  async counts(): Promise<Record<JobState, number>> {
    if (!this.ready) throw new RedisAwayError('redis is not connected');
    const counts = await withDeadline(
      this.#queue.getJobCounts(...jobStates),
      ADD_DEADLINE_MS,
      'getJobCounts',
    );
    return counts as Record<JobState, number>;
  }

  async close(): Promise<void> {
    await withDeadline(this.#queue.close(), CLOSE_DEADLINE_MS, 'closing the queue').catch(() => {});
    this.#redis.disconnect();
  }
}

export class RedisAwayError extends Error {
  override readonly name = 'RedisAwayError';
}
