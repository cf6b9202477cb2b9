/** Sends hints to Redis. A hint that cannot be sent is no fault: reconcile finds the record anyway. */
import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { withDeadline } from '../platform/deadline.ts';
import { createRedis } from '../platform/redis.ts';
import type { Logger } from '../platform/log.ts';
import { errorTypeOf, startSpans, tracing, type Spans } from '../platform/tracing.ts';
import { QUEUE_PREFIX, jobOptions, jobsFor, queueNames, queueSpan, type Hint, type QueueName } from './job.ts';

/** Longest one `addBulk` may take. It may still happen afterwards, which claims make harmless. */
const ADD_DEADLINE_MS = 1_000;
const COMMAND_TIMEOUT_MS = 500;
/** Longest closing may take; BullMQ's own close can hang while Redis is away. */
const CLOSE_DEADLINE_MS = 1_000;

export class HintSender {
  readonly #redis: Redis;
  readonly #queues: Readonly<Record<QueueName, Queue>>;

  constructor(options: { readonly redisUrl: string; readonly log: Logger }) {
    this.#redis = createRedis(options.redisUrl, { for: 'commands', commandTimeoutMs: COMMAND_TIMEOUT_MS }, options.log);
    const queue = (name: QueueName): Queue => {
      const made = new Queue(name, { connection: this.#redis, prefix: QUEUE_PREFIX, skipVersionCheck: true });
      made.on('error', () => {}); // Told once by createRedis.
      return made;
    };
    this.#queues = { applications: queue('applications'), notifications: queue('notifications') };
  }

  /** Whether Redis answers at the moment. */
  get ready(): boolean {
    return this.#redis.status === 'ready';
  }

  /**
   * Adds the hints, `delayMs` from now; rejects at once while Redis is away and after a second when it is slow.
   * `sentBy` tells who found the work, where that is not the one who made it: for traces, and because its first job may
   * be lost (see `jobsFor`).
   */
  async send(queue: QueueName, hints: readonly Hint[], delayMs = 0, sentBy?: 'reconcile'): Promise<void> {
    const spans = tracing() ? startSendSpans(queue, hints, delayMs, sentBy) : undefined;
    try {
      if (!this.ready) throw new RedisAwayError('redis is not connected');
      const jobs = jobsFor(spans === undefined ? hints : inTraceOf(hints, spans), sentBy !== undefined).map(
        ({ data, ...id }) => ({
          name: queue,
          data,
          opts: { ...jobOptions, ...id, ...(delayMs > 0 ? { delay: delayMs } : {}) },
        }),
      );
      await withDeadline(this.#queues[queue].addBulk(jobs), ADD_DEADLINE_MS, 'addBulk');
    } catch (error) {
      spans?.fail(errorTypeOf(error));
      throw error;
    } finally {
      spans?.end();
    }
  }

  /** Jobs of `queue` by state; rejects while Redis is away. */
  async counts(queue: QueueName): Promise<Record<string, number>> {
    if (!this.ready) throw new RedisAwayError('redis is not connected');
    return withDeadline(
      this.#queues[queue].getJobCounts('waiting', 'active', 'delayed', 'prioritized'),
      ADD_DEADLINE_MS,
      'getJobCounts',
    );
  }

  async close(): Promise<void> {
    const closing = Promise.allSettled(queueNames.map((name) => this.#queues[name].close()));
    await withDeadline(closing, CLOSE_DEADLINE_MS, 'closing queues').catch(() => {});
    this.#redis.disconnect();
  }
}

/** A hint tells which sending made it; whose trace the work belongs to is the record's to say. */
function inTraceOf(hints: readonly Hint[], spans: Spans): Hint[] {
  return hints.map((hint, index) => ({ ...hint, traceparent: spans.traceparents[index] }));
}

function startSendSpans(
  queue: QueueName,
  hints: readonly Hint[],
  delayMs: number,
  sentBy: string | undefined,
): Spans | undefined {
  const span = queueSpan('send', queue, {
    ...(hints.length > 1 ? { 'messaging.batch.message_count': hints.length } : {}),
    ...(delayMs > 0 ? { 'partner_ingest.delay_ms': delayMs } : {}),
    ...(sentBy === undefined ? {} : { 'partner_ingest.sent_by': sentBy }),
  });
  return startSpans(
    span,
    hints.map(({ traceparent }) => traceparent),
  );
}

export class RedisAwayError extends Error {
  override readonly name = 'RedisAwayError';
}
