/**
 * Sends hints to Redis. A hint that cannot be sent is no fault: reconcile finds the record anyway.
 */
import { Queue } from 'bullmq';
import type { Clock } from '../platform/clock.ts';
import { withDeadline } from '../platform/deadline.ts';
import { defined } from '../platform/defined.ts';
import { createRedis, isReady, type RedisClient } from '../platform/redis.ts';
import type { Logger } from '../platform/log.ts';
import { errorTypeOf, startSpans, tracing, type Spans } from '../platform/tracing.ts';
import {
  BEHIND,
  QUEUE,
  QUEUE_PREFIX,
  jobOptions,
  jobStates,
  jobsFor,
  queueSpan,
  type Hint,
  type JobState,
} from './job.ts';
import { Shares } from './shares.ts';

/** Longest one `addBulk` may take. It may still happen afterwards, which claims make harmless. */
const ADD_DEADLINE_MS = 1_000;
const COMMAND_TIMEOUT_MS = 500;
/** Longest closing may take; BullMQ's own close can hang while Redis is away. */
const CLOSE_DEADLINE_MS = 1_000;

export class HintSender {
  /** The connection, for who works on the queue in this process; `close` ends it. */
  readonly redis: RedisClient;
  readonly #queue: Queue;
  readonly #shares: Shares;

  constructor(options: {
    readonly redisUrl: string;
    readonly clock: Pick<Clock, 'monotonicMs'>;
    readonly log: Logger;
  }) {
    this.redis = createRedis(
      options.redisUrl,
      { commandTimeoutMs: COMMAND_TIMEOUT_MS },
      options.log,
    );
    this.#queue = new Queue(QUEUE, {
      connection: this.redis,
      prefix: QUEUE_PREFIX,
      skipVersionCheck: true,
    });
    this.#queue.on('error', () => {}); // Told once by createRedis.
    this.#shares = new Shares(() => options.clock.monotonicMs());
  }

  /** Whether Redis answers at the moment. */
  get ready(): boolean {
    return isReady(this.redis);
  }

  /**
   * Adds the hints; rejects at once while Redis is away and after a second when it is slow.
   * `sentBy` tells who found the work, where that is not the one who made it, for traces.
   */
  async send(hints: readonly Hint[], sentBy?: 'reconcile'): Promise<void> {
    const spans = tracing() ? startSendSpans(hints, sentBy) : undefined;
    try {
      if (!this.ready) throw new RedisAwayError('redis is not connected');
      const traced = spans === undefined ? hints : inTraceOf(hints, spans);
      const { first = [], behind = [] } = Object.groupBy(traced, ({ partnerId }) =>
        partnerId !== undefined && this.#shares.isOneOfMany(partnerId) ? 'behind' : 'first',
      );
      const jobs = [
        ...jobsFor(first).map((data) => ({ name: QUEUE, data, opts: jobOptions })),
        ...jobsFor(behind).map((data) => ({
          name: QUEUE,
          data,
          opts: { ...jobOptions, ...BEHIND },
        })),
      ];
      await withDeadline(this.#queue.addBulk(jobs), ADD_DEADLINE_MS, 'addBulk');
    } catch (error) {
      spans?.fail(errorTypeOf(error));
      throw error;
    } finally {
      spans?.end();
    }
  }

  /** Jobs by state; rejects while Redis is away. */
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
    this.redis.disconnect();
  }
}

/** A hint tells which sending made it; whose trace the work belongs to is the record's to say. */
function inTraceOf(hints: readonly Hint[], spans: Spans): Hint[] {
  return hints.map((hint, index) => ({ ...hint, traceparent: spans.traceparents[index] }));
}

function startSendSpans(hints: readonly Hint[], sentBy: string | undefined): Spans | undefined {
  const span = queueSpan('send', {
    ...(hints.length > 1 ? { 'messaging.batch.message_count': hints.length } : {}),
    ...defined({ 'partner_ingest.sent_by': sentBy }),
  });
  return startSpans(
    span,
    hints.map(({ traceparent }) => traceparent),
  );
}

export class RedisAwayError extends Error {
  override readonly name = 'RedisAwayError';
}
