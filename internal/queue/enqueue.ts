/** Sends jobs to Redis; processors find the records of lost jobs by `dueAt`. */
import { Queue } from 'bullmq';
import { queuePrefix, type KnownInstallation } from '../installation/names.ts';
import type { Probe } from '../platform/http/admin-server.ts';
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
  readonly #redis: RedisClient;
  readonly #installation: KnownInstallation;
  /** The queue of the installation's id. */
  #queue: Queue | undefined;
  readonly ends: EndSender;
  readonly old: OldQueue;

  constructor(options: {
    readonly redisUrl: string;
    readonly redisTls?: RedisTls;
    readonly installation: KnownInstallation;
    readonly log: Logger;
    readonly warnings?: Probe[];
  }) {
    const use = { commandTimeoutMs: COMMAND_TIMEOUT_MS };
    this.#redis = createRedis(options.redisUrl, use, options);
    this.#installation = options.installation;
    this.ends = new EndSender(this.#redis, options.installation);
    this.old = new OldQueue(this.#redis);
  }

  get ready(): boolean {
    return this.#installation.id !== undefined && this.#redis.status === 'ready';
  }

  /** Rejects at once while Redis is away, or the installation's id is not known. */
  async send(hints: readonly (Hint | Retry)[]): Promise<void> {
    const batch = hints.length > 1 ? { 'messaging.batch.message_count': hints.length } : {};
    const parents = hints.map(({ traceparent }) => traceparent);
    await inSpans(queueSpan('send', batch), parents, async (traceparents) => {
      const queue = this.#openQueue();
      const traced = hints.map((hint, index) => ({ ...hint, traceparent: traceparents[index] }));
      await withDeadline(addTo(queue, jobsFor(traced)), ADD_DEADLINE_MS, 'addBulk');
    });
  }

  async counts(): Promise<Record<JobState, number>> {
    const counts = await withDeadline(
      this.#openQueue().getJobCounts(...jobStates),
      ADD_DEADLINE_MS,
      'getJobCounts',
    );
    return counts as Record<JobState, number>;
  }

  async close(): Promise<void> {
    await closeQueue(this.#queue);
    this.#redis.disconnect();
  }

  #openQueue(): Queue {
    const { id } = this.#installation;
    if (id === undefined || !this.ready) throw new RedisAwayError('redis is not connected');
    const prefix = queuePrefix(id);
    if (this.#queue?.opts.prefix !== prefix) {
      void closeQueue(this.#queue);
      this.#queue = new Queue(QUEUE, { connection: this.#redis, prefix, skipVersionCheck: true });
      this.#queue.on('error', () => {}); // createRedis already logs it.
    }
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
