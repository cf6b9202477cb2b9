/**
 * Takes hints from the queue into this process.
 *
 * A job leaves Redis once its hints are in hand, so its lock need not be renewed. If the process is
 * killed, reconcile finds the records.
 */
import { randomUUID } from 'node:crypto';
import { Worker, createRedisBackend } from 'bullmq';
import type { Clock } from '../platform/clock.ts';
import { pause, withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { isReady, type RedisClient } from '../platform/redis.ts';
import type { HintsInHand } from './hints-in-hand.ts';
import { QUEUE, QUEUE_PREFIX, hintsOf, type Hint } from './job.ts';

/** A hint waits half of this on average. */
const ASK_EVERY_MS = 100;
const ASK_AFTER_ERROR_MS = 500;
/** A job fetched later returns to the queue when its lock ends. */
const TURN_DEADLINE_MS = 1_000;
/** Fetching and removing a job takes milliseconds. */
const LOCK_MS = 10_000;
const STALLED_CHECK_MS = 5_000;
/** BullMQ's close can hang while Redis is away. */
const CLOSE_WORKER_MS = 1_000;

export interface ConsumerOptions {
  readonly work: HintsInHand;
  readonly redis: RedisClient;
  readonly closeDeadlineMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** May reject. */
  readonly sendBack: (hints: readonly Hint[]) => Promise<void>;
}

export class Consumer {
  readonly #options: ConsumerOptions;
  readonly #worker: Worker;
  readonly #token = randomUUID();
  readonly #stop = new AbortController();
  readonly #fetching: Promise<void>;
  #turnedAt: number;

  constructor(options: ConsumerOptions) {
    this.#options = options;
    const { redis, log, clock } = options;
    this.#worker = new Worker(
      QUEUE,
      null,
      {
        connection: redis,
        prefix: QUEUE_PREFIX,
        lockDuration: LOCK_MS,
        stalledInterval: STALLED_CHECK_MS,
        skipVersionCheck: true,
      },
      // Only BullMQ's own loop needs a connection for blocking reads.
      (name, opts) => createRedisBackend(name, opts),
    );
    this.#worker.on('error', (error) => log.debug({ err: error }, 'worker error'));
    void this.#worker.startStalledCheckTimer();
    this.#turnedAt = clock.monotonicMs();
    this.#fetching = this.#fetchUntilStopped();
  }

  faults(deadlineMs: number): string[] {
    const { work, clock } = this.#options;
    const idleMs = clock.monotonicMs() - this.#turnedAt;
    if (work.count > 0 || work.paused || idleMs < deadlineMs) return [];
    return [
      `the worker has not asked for work for ${Math.round(idleMs / 1_000)} s and has none in hand`,
    ];
  }

  async close(): Promise<void> {
    const { work, sendBack, closeDeadlineMs } = this.#options;
    this.#stop.abort();
    await this.#fetching;
    const left = await work.close(AbortSignal.timeout(closeDeadlineMs));
    if (left.length > 0) await sendBack(left).catch(() => {});
    await withDeadline(this.#worker.close(true), CLOSE_WORKER_MS, 'closing the worker').catch(
      () => {},
    );
  }

  async #fetchUntilStopped(): Promise<void> {
    const { work, clock } = this.#options;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await work.whenFree(signal);
      this.#turnedAt = clock.monotonicMs();
      if (!signal.aborted) await pause(await this.#turn(), signal);
    }
  }

  /** Returns the milliseconds to pause. */
  async #turn(): Promise<number> {
    const { redis, log } = this.#options;
    // Before its first connection BullMQ queues commands and would later fetch an unawaited job.
    if (!isReady(redis)) return ASK_AFTER_ERROR_MS;
    try {
      return (await withDeadline(this.#fetchOne(), TURN_DEADLINE_MS, 'fetching a job'))
        ? 0
        : ASK_EVERY_MS;
    } catch (error) {
      log.debug({ err: error }, 'no job could be fetched');
      return ASK_AFTER_ERROR_MS;
    }
  }

  async #fetchOne(): Promise<boolean> {
    const { log, work } = this.#options;
    const job = await this.#worker.getNextJob(this.#token, { block: false });
    if (job === undefined) return false;
    const hints = hintsOf(job.data);
    if (hints === undefined) log.error({ job_id: job.id }, 'a job that holds no hints was dropped');
    else work.take(hints);
    await job.moveToCompleted(undefined, this.#token, false);
    return true;
  }
}
