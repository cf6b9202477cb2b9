/** Sends hints to Redis. A hint that cannot be sent is no fault: reconcile finds the record anyway. */
import { Queue } from 'bullmq';
import type { Clock } from '../platform/clock.ts';
import { withDeadline } from '../platform/deadline.ts';
import { createRedis, isReady, type RedisClient } from '../platform/redis.ts';
import type { Logger } from '../platform/log.ts';
import { errorTypeOf, startSpans, tracing, type Spans } from '../platform/tracing.ts';
import {
  BEHIND,
  QUEUE_PREFIX,
  jobOptions,
  jobStates,
  jobsFor,
  queueNames,
  queueSpan,
  type Hint,
  type JobState,
  type QueueName,
} from './job.ts';
import { Shares } from './shares.ts';

/** Longest one `addBulk` may take. It may still happen afterwards, which claims make harmless. */
const ADD_DEADLINE_MS = 1_000;
const COMMAND_TIMEOUT_MS = 500;
/** Longest closing may take; BullMQ's own close can hang while Redis is away. */
const CLOSE_DEADLINE_MS = 1_000;

export class HintSender {
  /** The connection, for who works on the queues in this process; `close` ends it. */
  readonly redis: RedisClient;
  readonly #queues: Readonly<Record<QueueName, Queue>>;
  readonly #shares: Readonly<Record<QueueName, Shares>>;

  constructor(options: {
    readonly redisUrl: string;
    readonly clock: Pick<Clock, 'monotonicMs'>;
    readonly log: Logger;
  }) {
    this.redis = createRedis(options.redisUrl, { for: 'commands', commandTimeoutMs: COMMAND_TIMEOUT_MS }, options.log);
    const queue = (name: QueueName): Queue => {
      const made = new Queue(name, { connection: this.redis, prefix: QUEUE_PREFIX, skipVersionCheck: true });
      made.on('error', () => {}); // Told once by createRedis.
      return made;
    };
    const shares = (): Shares => new Shares(() => options.clock.monotonicMs());
    this.#shares = { applications: shares(), notifications: shares() };
    this.#queues = { applications: queue('applications'), notifications: queue('notifications') };
  }

  /** Whether Redis answers at the moment. */
  get ready(): boolean {
    return isReady(this.redis);
  }

  /**
   * Adds the hints, `delayMs` from now; rejects at once while Redis is away and after a second when it is slow.
   * `sentBy` tells who found the work, where that is not the one who made it, for traces.
   */
  async send(queue: QueueName, hints: readonly Hint[], delayMs = 0, sentBy?: 'reconcile'): Promise<void> {
    const spans = tracing() ? startSendSpans(queue, hints, delayMs, sentBy) : undefined;
    try {
      if (!this.ready) throw new RedisAwayError('redis is not connected');
      const opts = { ...jobOptions, ...(delayMs > 0 ? { delay: delayMs } : {}) };
      const traced = spans === undefined ? hints : inTraceOf(hints, spans);
      const { first = [], behind = [] } = Object.groupBy(traced, ({ partnerId }) =>
        partnerId !== undefined && this.#shares[queue].isOneOfMany(partnerId) ? 'behind' : 'first',
      );
      const jobs = [
        ...jobsFor(first).map((data) => ({ name: queue, data, opts })),
        ...jobsFor(behind).map((data) => ({ name: queue, data, opts: { ...opts, ...BEHIND } })),
      ];
      await withDeadline(this.#queues[queue].addBulk(jobs), ADD_DEADLINE_MS, 'addBulk');
    } catch (error) {
      spans?.fail(errorTypeOf(error));
      throw error;
    } finally {
      spans?.end();
    }
  }

  /** Jobs of `queue` by state; rejects while Redis is away. */
  async counts(queue: QueueName): Promise<Record<JobState, number>> {
    if (!this.ready) throw new RedisAwayError('redis is not connected');
    const counts = await withDeadline(this.#queues[queue].getJobCounts(...jobStates), ADD_DEADLINE_MS, 'getJobCounts');
    return counts as Record<JobState, number>;
  }

  async close(): Promise<void> {
    const closing = Promise.allSettled(queueNames.map((name) => this.#queues[name].close()));
    await withDeadline(closing, CLOSE_DEADLINE_MS, 'closing queues').catch(() => {});
    this.redis.disconnect();
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
