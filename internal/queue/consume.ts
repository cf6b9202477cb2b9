/** Receives jobs and hands on their hints. */
import { Worker, createRedisBackend } from 'bullmq';
import type { Probe } from '../platform/http/admin-server.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/log.ts';
import { createRedis, type RedisTls } from '../platform/stores/redis.ts';
import { QUEUE, QUEUE_PREFIX, hintsOf, type Hint, type Step } from './job.ts';

/** An idle worker asks again after this, so a silent Redis is noticed soon. */
const WAIT_S = 1;
const COMMAND_TIMEOUT_MS = 1_000 * WAIT_S + 800;
/** After an error BullMQ would ask again at once. */
const REST_AFTER_ERROR_MS = 500;
/** A job is handled in milliseconds. */
const LOCK_MS = 10_000;
const STALLED_CHECK_MS = 5_000;
/** BullMQ's close can hang while Redis is away. */
const CLOSE_MS = 1_000;

export class Consumer {
  readonly #redis: ReturnType<typeof createRedis>;
  readonly #worker: Worker;
  #paused = false;
  #rest: NodeJS.Timeout | undefined;

  /** A killed process loses hints that `take` got; reconcile finds their records. */
  constructor(options: {
    readonly redisUrl: string;
    readonly redisTls?: RedisTls;
    readonly log: Logger;
    readonly warnings?: Probe[];
    readonly take: (hints: readonly Hint[], step: Step) => void;
  }) {
    const { redisUrl, log, take } = options;
    this.#redis = createRedis(redisUrl, { commandTimeoutMs: COMMAND_TIMEOUT_MS }, options);
    this.#worker = new Worker(
      QUEUE,
      async ({ id, name, data }) => {
        const hints = hintsOf(data);
        if (hints === undefined) log.error({ job_id: id }, 'a job without records was dropped');
        else take(hints, name === 'mail' ? 'mail' : 'account');
      },
      {
        connection: this.#redis,
        prefix: QUEUE_PREFIX,
        drainDelay: WAIT_S,
        runRetryDelay: REST_AFTER_ERROR_MS,
        lockDuration: LOCK_MS,
        stalledInterval: STALLED_CHECK_MS,
        skipVersionCheck: true,
      },
      // With delayed jobs BullMQ would wait up to ten seconds for an answer.
      (name, opts, use) =>
        Object.defineProperty(createRedisBackend(name, opts, use), 'maximumBlockTimeout', {
          value: WAIT_S,
        }),
    );
    this.#worker.on('error', (error) => {
      log.debug({ err: error }, 'worker error');
      this.#restAfterError();
    });
  }

  pause(): void {
    this.#paused = true;
    void this.#worker.pause(true);
  }

  resume(): void {
    this.#paused = false;
    void this.#worker.resume();
  }

  async close(): Promise<void> {
    clearTimeout(this.#rest);
    // Lets a running job end; `close` alone would hang before the first connection.
    await withDeadline(this.#worker.pause(), CLOSE_MS, 'pausing the worker').catch(() => {});
    clearTimeout(this.#rest);
    await withDeadline(this.#worker.close(true), CLOSE_MS, 'closing the worker').catch(() => {});
    this.#redis.disconnect();
  }

  #restAfterError(): void {
    void this.#worker.pause(true);
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => {
      if (!this.#paused) void this.#worker.resume();
    }, REST_AFTER_ERROR_MS);
  }
}
