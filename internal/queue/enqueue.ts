/** Sends jobs to Redis; processors find the records of lost jobs by `dueAt`. */
import { Queue } from 'bullmq';
import { queuePrefix } from '../installation/installation.ts';
import type { Probe } from '../platform/process/probe.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { createRedis, type RedisClient, type RedisTls } from '../platform/stores/redis.ts';
import type { Logger } from '../platform/process/log.ts';
import { inSpans } from '../platform/process/tracing.ts';
import { EndSender } from './ends.ts';
import { OldQueue } from './old-queue.ts';
import {
  QUEUE,
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
  readonly redis: RedisClient;
  #queue: Queue | undefined;
  /** Of the installation; undefined until it is known. */
  id: string | undefined;
  readonly ends: EndSender;
  readonly old: OldQueue;

  constructor(options: {
    readonly redisUrl: string;
    readonly redisTls?: RedisTls;
    readonly log: Logger;
    readonly warnings?: Probe[];
  }) {
    const use = { commandTimeoutMs: COMMAND_TIMEOUT_MS };
    this.redis = createRedis(options.redisUrl, use, options);
    this.ends = new EndSender(this.redis, this);
    this.old = new OldQueue(this.redis);
  }

  get ready(): boolean {
    return this.id !== undefined && this.redis.status === 'ready';
  }

  /** Sends to the installation with this id, and to none before it. */
  follow(id: string): void {
    void closeQueue(this.#queue);
    this.#queue = new Queue(QUEUE, {
      connection: this.redis,
      prefix: queuePrefix(id),
      skipVersionCheck: true,
    });
    this.#queue.on('error', () => {}); // createRedis already logs it.
    this.id = id;
  }

  /** Rejects at once while Redis is away, or the installation's id is not known. */
  async send(hints: readonly (Hint | Retry)[]): Promise<void> {
    const batch = hints.length > 1 ? { 'messaging.batch.message_count': hints.length } : {};
    const parents = hints.map(({ traceparent }) => traceparent);
    await inSpans(queueSpan('send', batch), parents, async (traceparents) => {
      const queue = this.#readyQueue();
      const traced = hints.map((hint, index) => ({ ...hint, traceparent: traceparents[index] }));
      await withDeadline(addTo(queue, jobsFor(traced)), ADD_DEADLINE_MS, 'addBulk');
    });
  }

  async counts(): Promise<Record<JobState, number>> {
    const counts = await withDeadline(
      this.#readyQueue().getJobCounts(...jobStates),
      ADD_DEADLINE_MS,
      'getJobCounts',
    );
    return counts as Record<JobState, number>;
  }

  async close(): Promise<void> {
    await closeQueue(this.#queue);
    this.redis.disconnect();
  }

  #readyQueue(): Queue {
    if (this.#queue === undefined || !this.ready)
      throw new RedisAwayError('redis is not connected');
    return this.#queue;
  }
}

async function addTo(queue: Queue, jobs: readonly Job[]): Promise<void> {
  const retries = jobs.some(({ opts }) => opts.delay !== undefined);
  if (retries && (await queue.getDelayedCount()) >= RETRIES_MOST)
    throw new Error('too many retries wait in redis');
  await queue.addBulk([...jobs]);
}

async function closeQueue(queue: Queue | undefined): Promise<void> {
  const closing = queue?.close() ?? Promise.resolve();
  await withDeadline(closing, CLOSE_DEADLINE_MS, 'closing the queue').catch(() => {});
}

export class RedisAwayError extends Error {
  override readonly name = 'RedisAwayError';
}
