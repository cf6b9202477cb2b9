/**
 * Takes hints from a queue into the hands of this process.
 *
 * A job leaves Redis as soon as its hints are in hand: what a killed process had is found by
 * reconcile. So a job needs no lock that is renewed. The loop asks Redis in turns and never waits
 * inside it: each turn ends within a second.
 */
import { randomUUID } from 'node:crypto';
import { Worker, createRedisBackend } from 'bullmq';
import type { Clock } from '../platform/clock.ts';
import { pause, withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { isReady, type RedisClient } from '../platform/redis.ts';
import type { HintsInHand } from './hints-in-hand.ts';
import { QUEUE, QUEUE_PREFIX, hintsOf, type Hint } from './job.ts';

/** An empty queue is asked this often: a hint waits half of it on average. */
const ASK_EVERY_MS = 100;
/** After an error Redis is asked again after this. */
const ASK_AFTER_ERROR_MS = 500;
/**
 * Longest one turn may take. What is fetched later returns to the queue when its lock has run out.
 */
const TURN_DEADLINE_MS = 1_000;
/**
 * From fetching a job to removing it takes milliseconds; a job that is locked for longer is given
 * to someone else.
 */
const LOCK_MS = 10_000;
const STALLED_CHECK_MS = 5_000;
/** Longest closing waits for BullMQ, which can hang while Redis is away. */
const CLOSE_WORKER_MS = 1_000;

export interface ConsumerOptions {
  readonly work: HintsInHand;
  /** For commands; the caller closes it. */
  readonly redis: RedisClient;
  /**
   * Longest closing waits for the hints in work; beyond it the process leaves, and reconcile finds
   * their records.
   */
  readonly closeDeadlineMs: number;
  readonly clock: Clock;
  readonly log: Logger;
  /** Queues hints again that a closing consumer has not begun; may reject. */
  readonly sendBack: (hints: readonly Hint[]) => Promise<void>;
}

/** Starts at once; goes on by itself after an outage of Redis. */
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
      // Without the connection for blocking reads, which BullMQ's own loop needs.
      (name, opts) => createRedisBackend(name, opts),
    );
    this.#worker.on('error', (error) => log.debug({ err: error }, 'worker error'));
    void this.#worker.startStalledCheckTimer();
    this.#turnedAt = clock.monotonicMs();
    this.#fetching = this.#fetchUntilStopped();
  }

  /**
   * A liveness probe: says why when the loop has not turned for `deadlineMs` although nothing is in
   * hand.
   */
  faults(deadlineMs: number): string[] {
    const { work, clock } = this.#options;
    const idleMs = clock.monotonicMs() - this.#turnedAt;
    if (work.count > 0 || work.paused || idleMs < deadlineMs) return [];
    return [
      `the worker has not asked for work for ${Math.round(idleMs / 1_000)} s and has none in hand`,
    ];
  }

  /** Stops fetching, waits for the hints in work and sends the others back. */
  async close(): Promise<void> {
    const { work, sendBack, closeDeadlineMs } = this.#options;
    this.#stop.abort();
    await this.#fetching;
    const left = await work.close(AbortSignal.timeout(closeDeadlineMs));
    // Where they cannot be sent, reconcile finds their records.
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

  /** One turn; how long to rest after it, in milliseconds. Never rejects. */
  async #turn(): Promise<number> {
    const { redis, log } = this.#options;
    // Before its first connection BullMQ keeps a command until there is one, and would fetch a job
    // for nobody then.
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

  /** Takes one job; whether there may be more. */
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
