/** Sends hints to Redis; reconcile finds the records of lost hints. */
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
import { BusyPartners } from './busy-partners.ts';

/** A late `addBulk` is harmless, because each record is claimed once. */
const ADD_DEADLINE_MS = 1_000;
const COMMAND_TIMEOUT_MS = 500;
const CLOSE_DEADLINE_MS = 1_000;

export class HintSender {
  readonly redis: RedisClient;
  readonly #queue: Queue;
  readonly #shares: BusyPartners;

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
    this.#queue.on('error', () => {}); // createRedis already logs it.
    this.#shares = new BusyPartners(() => options.clock.monotonicMs());
  }

  get ready(): boolean {
    return isReady(this.redis);
  }

  /** Rejects at once while Redis is away. */
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
