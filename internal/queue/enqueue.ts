/** Sends jobs and ends to Redis; processors find the records of lost jobs by `dueAt`. */
import { Queue } from 'bullmq';
import { queuePrefix, redisName, type KnownInstallation } from '../installation/installation.ts';
import type { Probe } from '../platform/process/fault.ts';
import { withDeadline, pause } from '../platform/process/deadline.ts';
import { createRedis, type RedisClient, type RedisTls } from '../platform/stores/redis.ts';
import type { Logger } from '../platform/process/log.ts';
import { inSpans } from '../platform/process/tracing.ts';
import {
  QUEUE,
  jobStates,
  jobsFor,
  queueSpan,
  ENDS,
  type Hint,
  type Job,
  type JobState,
  type Retry,
  type HintResult,
} from './job.ts';
import type { LabelledCounter } from '../platform/process/registry.ts';

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

/* Sends hints together in the background; processors find the records of lost hints by `dueAt`. */

const MAX_WAITING_HINTS = 5_000;
/** A job costs as much as its record, so hints share jobs, and ends share messages. */
const LINGER_MS = 20;
const HINTS_PER_SEND = 500;

interface OutboxOptions {
  readonly sender: Pick<HintSender, 'send'>;
  /** Takes hints that could not be sent; must end in bounded time. */
  readonly otherwise?: (hints: readonly Hint[]) => Promise<void>;
  readonly results: LabelledCounter<{ readonly result: HintResult }>;
}

export class HintOutbox {
  readonly #options: OutboxOptions;
  #waiting: Hint[] = [];
  #sending: Promise<void> | undefined;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  add(hint: Hint): void {
    if (this.#waiting.length >= MAX_WAITING_HINTS) {
      this.#options.results.inc({ result: 'dropped' }, 1);
      return;
    }
    this.#waiting.push(hint);
    this.#sending ??= this.#sendAll();
  }

  whenEmpty(): Promise<void> {
    return this.#sending ?? Promise.resolve();
  }

  async #sendAll(): Promise<void> {
    await pause(LINGER_MS);
    while (this.#waiting.length > 0) await this.#deliver(this.#waiting.splice(0, HINTS_PER_SEND));
    this.#sending = undefined;
  }

  async #deliver(batch: readonly Hint[]): Promise<void> {
    const { sender, otherwise, results } = this.#options;
    try {
      await sender.send(batch);
      results.inc({ result: 'sent' }, batch.length);
    } catch {
      results.inc({ result: 'failed' }, batch.length);
      await otherwise?.(batch).catch(() => {});
    }
  }
}

/*
 * Removes the queue of versions whose names in Redis had no id. The records of its jobs are found
 * by `dueAt`. This part goes a version later.
 */

const OLD_PREFIX = '{partner-ingest}';
const oldKey = (name: string): string => `${OLD_PREFIX}:${QUEUE}:${name}`;
/** Looks in a row without an older processor, which keeps a key of 5 s. */
const QUIET_LOOKS = 5;
/** Jobs that one run of BullMQ's script removes. */
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
      this.#redis.exists(oldKey('meta'), oldKey('wait'), oldKey('delayed')),
      this.#redis.exists(oldKey('stalled-check')),
    ]);
    this.#quiet = isThere === 0 || isUsed === 1 ? 0 : this.#quiet + 1;
    if (this.#quiet < QUIET_LOOKS) return;
    const queue = new Queue(QUEUE, {
      connection: this.#redis,
      prefix: OLD_PREFIX,
      skipVersionCheck: true,
      skipMetasUpdate: true,
    });
    queue.on('error', () => {});
    try {
      await queue.obliterate({ force: true, count: REMOVED_TOGETHER });
      await this.#redis.del(oldKey('meta'));
    } finally {
      await queue.close();
    }
  }
}

/*
 * Tells every ingest which submissions have ended, by Redis' publish and subscribe. Messages hold
 * ids only and may be lost: the record says what became of a submission.
 */

/** Further ends are not published; ingest reads the record. */
const WAITING_MOST = 1_000;
/** Publishes in the background: adding neither fails nor waits. */
export class EndSender {
  readonly #redis: Pick<RedisClient, 'status' | 'publish'>;
  readonly #installation: KnownInstallation;
  #waiting: string[] = [];

  constructor(redis: Pick<RedisClient, 'status' | 'publish'>, installation: KnownInstallation) {
    this.#redis = redis;
    this.#installation = installation;
  }

  add(requestId: string): void {
    if (this.#waiting.length >= WAITING_MOST) return;
    if (this.#waiting.push(requestId) === 1) setTimeout(() => this.#send(), LINGER_MS);
  }

  #send(): void {
    const ids = this.#waiting.splice(0).join(' ');
    const { id } = this.#installation;
    if (id !== undefined && this.#redis.status === 'ready')
      this.#redis.publish(redisName(id, ENDS), ids).catch(() => {});
  }
}
