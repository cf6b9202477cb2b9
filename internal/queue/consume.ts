/** Takes jobs from a queue: bounded, pausable by itself, and alive only while it makes progress. */
import { Worker } from 'bullmq';
import type { Clock } from '../platform/clock.ts';
import { withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { createRedis } from '../platform/redis.ts';
import { QUEUE_PREFIX, hintSchema, type Hint, type QueueName } from './job.ts';

/**
 * A job's lock and how often lost ones are looked for. Claims, not locks, keep work single, so a lock lost by a busy
 * event loop costs nothing; a killed worker's job, though, stands in the way of its next hint until its lock is found.
 */
const LOCK_MS = 15_000;
const STALLED_CHECK_MS = 5_000;
/** Longest closing may take; beyond it the process leaves and reconcile takes over what was in hand. */
const CLOSE_DEADLINE_MS = 15_000;

export interface Consumer {
  readonly queue: QueueName;
  /** Milliseconds since a job was last taken, or since the start. */
  idleMs(): number;
  readonly paused: boolean;
  /** Stops taking jobs in this process only; what is in hand goes on. */
  pause(): Promise<void>;
  resume(): void;
  close(): Promise<void>;
}

/** Starts taking jobs at once; comes back by itself after a Redis outage. `handle` must not leave a record unaccounted. */
export function startConsumer(options: {
  readonly queue: QueueName;
  readonly redisUrl: string;
  readonly concurrency: number;
  readonly clock: Clock;
  readonly log: Logger;
  handle(hint: Hint): Promise<void>;
}): Consumer {
  const { queue, clock, log } = options;
  const redis = createRedis(options.redisUrl, { for: 'worker' }, log);
  let lastTaken = clock.monotonicMs();
  const worker = new Worker(
    queue,
    async (job) => {
      lastTaken = clock.monotonicMs();
      const hint = hintSchema.safeParse(job.data);
      if (!hint.success) {
        log.error({ queue, job_id: job.id }, 'a job that is no hint was dropped');
        return;
      }
      await options.handle(hint.data);
    },
    {
      connection: redis,
      prefix: QUEUE_PREFIX,
      concurrency: options.concurrency,
      lockDuration: LOCK_MS,
      stalledInterval: STALLED_CHECK_MS,
      skipVersionCheck: true,
    },
  );
  worker.on('error', (error) => log.debug({ err: error, queue }, 'worker error'));
  worker.on('failed', (job, error) => {
    log.error({ queue, request_id: requestIdOf(job?.data), err: error }, 'job failed; reconcile will queue it again');
  });
  return {
    queue,
    idleMs: () => clock.monotonicMs() - lastTaken,
    get paused() {
      return worker.isPaused();
    },
    // `true`: do not wait for jobs in hand, because one of them may be the caller.
    pause: () => worker.pause(true),
    resume: () => {
      lastTaken = clock.monotonicMs();
      void worker.resume();
    },
    close: async () => {
      await withDeadline(worker.close(), CLOSE_DEADLINE_MS, `closing worker ${queue}`).finally(() =>
        redis.disconnect(),
      );
    },
  };
}

function requestIdOf(data: unknown): string | undefined {
  const hint = hintSchema.safeParse(data);
  return hint.success ? hint.data.requestId : undefined;
}
