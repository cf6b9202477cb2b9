/** Takes hints from a queue: bounded, pausable by itself, and alive only while it makes progress. */
import { Worker } from 'bullmq';
import type { Clock } from '../platform/clock.ts';
import { withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { createRedis } from '../platform/redis.ts';
import { Slots } from '../platform/slots.ts';
import { QUEUE_PREFIX, hintsOf, type Hint, type QueueName } from './job.ts';

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
  /** Milliseconds since a hint was last taken up, or since the start. */
  idleMs(): number;
  readonly paused: boolean;
  /** Stops taking up hints in this process only; what is in hand goes on. */
  pause(): Promise<void>;
  resume(): void;
  close(): Promise<void>;
}

/** Starts at once; comes back by itself after a Redis outage. `handle` must not leave a record unaccounted. */
export function startConsumer(options: {
  readonly queue: QueueName;
  readonly redisUrl: string;
  /** Hints worked on at the same time. */
  readonly concurrency: number;
  readonly clock: Clock;
  readonly log: Logger;
  handle(hint: Hint): Promise<void>;
  /** Queues hints again that a pausing or closing consumer has not taken up; may reject. */
  putBack(hints: readonly Hint[]): Promise<void>;
}): Consumer {
  const { queue, clock, log } = options;
  const redis = createRedis(options.redisUrl, { for: 'worker' }, log);
  let lastTaken = clock.monotonicMs();
  let closing = false;
  const slots = new Slots(options.concurrency);
  const worker = new Worker(
    queue,
    async (job) => {
      const hints = hintsOf(job.data);
      if (hints === undefined) {
        log.error({ queue, job_id: job.id }, 'a job that holds no hints was dropped');
        return;
      }
      const left: Hint[] = [];
      const takeUp = async (hint: Hint): Promise<void> => {
        if (closing || worker.isPaused()) {
          left.push(hint);
          return;
        }
        lastTaken = clock.monotonicMs();
        await options.handle(hint);
      };
      await Promise.all(hints.map((hint) => slots.run(() => takeUp(hint))));
      // Where they cannot be put back, reconcile finds their records.
      if (left.length > 0) await options.putBack(left).catch(() => {});
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
    log.error({ queue, job_id: job?.id, err: error }, 'job failed; reconcile will queue its records again');
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
      closing = true;
      await withDeadline(worker.close(), CLOSE_DEADLINE_MS, `closing worker ${queue}`).finally(() =>
        redis.disconnect(),
      );
    },
  };
}
