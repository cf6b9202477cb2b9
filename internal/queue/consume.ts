/** Receives jobs, and hands on their hints; hears what has ended. */
import { Worker } from 'bullmq';
import { queuePrefix, redisName, type KnownInstallation } from '../installation/installation.ts';
import type { Probe } from '../platform/process/fault.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/log.ts';
import { createRedis, type RedisClient, type RedisTls } from '../platform/stores/redis.ts';
import { backendWaiting } from './inside-bullmq.ts';
import { ENDS, QUEUE, hintsOf, type Hint, type Step } from './job.ts';

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

interface ConsumerOptions {
  readonly redisUrl: string;
  readonly redisTls?: RedisTls;
  readonly log: Logger;
  readonly warnings?: Probe[];
  readonly receive: (hints: readonly Hint[], step: Step) => void;
}

export class Consumer {
  readonly #redis: ReturnType<typeof createRedis>;
  readonly #options: ConsumerOptions;
  #worker: Worker | undefined;
  #paused = false;
  #rest: NodeJS.Timeout | undefined;

  /** A killed process loses hints that `receive` got; reconcile finds their records. */
  constructor(options: ConsumerOptions) {
    this.#options = options;
    const use = { commandTimeoutMs: COMMAND_TIMEOUT_MS };
    this.#redis = createRedis(options.redisUrl, use, options);
  }

  /** Takes the jobs of the installation with this id, and of none before it. */
  follow(id: string): void {
    const before = this.#worker;
    this.#worker = this.#open(queuePrefix(id));
    if (this.#paused) this.pause();
    void closeWorker(before);
  }

  #open(prefix: string): Worker {
    const { log, receive } = this.#options;
    const worker = new Worker(
      QUEUE,
      async ({ id, name, data }) => {
        const hints = hintsOf(data);
        if (hints === undefined) log.error({ job_id: id }, 'a job without records was dropped');
        else receive(hints, name === 'mail' ? 'mail' : 'account');
      },
      {
        connection: this.#redis,
        prefix,
        drainDelay: WAIT_S,
        runRetryDelay: REST_AFTER_ERROR_MS,
        lockDuration: LOCK_MS,
        stalledInterval: STALLED_CHECK_MS,
        skipVersionCheck: true,
      },
      backendWaiting(WAIT_S),
    );
    worker.on('error', (error) => {
      log.debug({ err: error }, 'worker error');
      if (worker === this.#worker) this.#restAfterError(worker);
    });
    return worker;
  }

  pause(): void {
    this.#paused = true;
    void this.#worker?.pause(true);
  }

  resume(): void {
    this.#paused = false;
    void this.#worker?.resume();
  }

  async close(): Promise<void> {
    clearTimeout(this.#rest);
    const worker = this.#worker;
    this.#worker = undefined;
    await closeWorker(worker);
    this.#redis.disconnect();
  }

  #restAfterError(worker: Worker): void {
    void worker.pause(true);
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => {
      if (!this.#paused && worker === this.#worker) void worker.resume();
    }, REST_AFTER_ERROR_MS);
  }
}

async function closeWorker(worker: Worker | undefined): Promise<void> {
  if (worker === undefined) return;
  // Lets a running job end; `close` alone would hang before the first connection.
  await withDeadline(worker.pause(), CLOSE_MS, 'pausing the worker').catch(() => {});
  await withDeadline(worker.close(true), CLOSE_MS, 'closing the worker').catch(() => {});
}

/* Hears which submissions have ended (`EndSender`). */

/** A repeated SUBSCRIBE reveals a silent connection. */
const SUBSCRIBE_EVERY_MS = 1_000;

/** Needs its own client. The returned function ends subscription and client. */
export function hearEnds(
  redis: RedisClient,
  installation: KnownInstallation,
  heard: (requestIds: readonly string[]) => void,
): () => void {
  let asking = false;
  let channel: string | undefined;
  const subscribe = (): void => {
    const { id } = installation;
    if (asking || id === undefined || redis.status !== 'ready') return;
    asking = true;
    const answered = (): void => void (asking = false);
    const before = channel;
    channel = redisName(id, ENDS);
    if (before !== undefined && before !== channel) redis.unsubscribe(before).catch(() => {});
    redis.subscribe(channel).then(answered, answered);
  };
  redis.on('message', (_channel, ids) => heard(ids.split(' ')));
  redis.on('ready', subscribe);
  const timer = setInterval(subscribe, SUBSCRIBE_EVERY_MS);
  return () => {
    clearInterval(timer);
    redis.disconnect();
  };
}
