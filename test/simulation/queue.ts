/**
 * Redis as the service sees it: hints wait, are handed to some worker, and may be lost, repeated or reordered at any
 * time. How jobs carry hints is no business of the model.
 */
import { jobId, queueNames, type Hint, type QueueName } from '../../internal/queue/job.ts';
import type { Pausable } from '../../internal/processor/outage.ts';
import type { Scheduler, SimProcess } from './scheduler.ts';

/** After this the job of a dead worker is handed out again (LOCK_MS and a stalled check of consume.ts). */
const STALLED_MS = 20_000;

interface Job {
  readonly hint: Hint;
  readonly readyAt: number;
  active: boolean;
}

export interface SimWorker extends Pausable {
  readonly process: SimProcess;
  readonly concurrency: number;
  readonly handle: (hint: Hint) => Promise<void>;
  paused: boolean;
  busy: number;
}

export interface RedisWeather {
  away: boolean;
  /** Share of hints that are lost on their way. */
  lossy: number;
  /** Share of hints that two workers get. */
  repeating: number;
}

export class SimQueue {
  readonly #scheduler: Scheduler;
  readonly #weather: RedisWeather;
  readonly #jobs: Readonly<Record<QueueName, Map<string, Job>>> = { applications: new Map(), notifications: new Map() };
  #workers: SimWorker[] = [];
  #count = 0;

  constructor(scheduler: Scheduler, weather: RedisWeather) {
    this.#scheduler = scheduler;
    this.#weather = weather;
  }

  async send(queue: QueueName, hints: readonly Hint[], delayMs = 0): Promise<void> {
    const { random } = this.#scheduler;
    await this.#scheduler.pause(random.between(0.1, 3));
    if (this.#weather.away) throw new Error('redis is not connected');
    for (const hint of hints) {
      if (!random.chance(this.#weather.lossy)) this.#add(queue, hint, delayMs);
    }
    await this.#scheduler.pause(random.between(0.1, 3));
    if (random.chance(this.#weather.lossy)) throw new Error('no answer from redis');
  }

  async waiting(queue: QueueName): Promise<number> {
    await this.#scheduler.pause(this.#scheduler.random.between(0.1, 3));
    if (this.#weather.away) throw new Error('redis is not connected');
    return [...this.#jobs[queue].values()].filter((job) => !job.active).length;
  }

  /** Everything in Redis is gone, what is in hand too. */
  flush(): void {
    for (const queue of queueNames) this.#jobs[queue].clear();
  }

  startWorker(
    queue: QueueName,
    options: { readonly process: SimProcess; readonly concurrency: number; handle(hint: Hint): Promise<void> },
  ): SimWorker {
    const { process, concurrency } = options;
    const worker: SimWorker = {
      queue,
      process,
      concurrency,
      handle: (hint) => options.handle(hint),
      paused: false,
      busy: 0,
      pause: () => {
        worker.paused = true;
        return Promise.resolve();
      },
      resume: () => {
        worker.paused = false;
        this.handOut();
      },
    };
    this.#workers.push(worker);
    this.handOut();
    return worker;
  }

  /** Gives what is ready to workers that are free; called whenever that may have changed. */
  handOut(): void {
    if (this.#weather.away) return;
    this.#workers = this.#workers.filter((worker) => worker.process.alive);
    for (const queue of queueNames) {
      for (const [id, job] of this.#jobs[queue]) {
        if (job.active || job.readyAt > this.#scheduler.now) continue;
        const takers = this.#takers(queue);
        if (takers.length === 0) break;
        this.#hand(queue, id, job, this.#scheduler.random.pick(takers));
        if (this.#scheduler.random.chance(this.#weather.repeating)) {
          const others = this.#takers(queue);
          if (others.length > 0) this.#hand(queue, id, job, this.#scheduler.random.pick(others));
        }
      }
    }
  }

  #takers(queue: QueueName): SimWorker[] {
    return this.#workers.filter(
      (worker) => worker.queue === queue && worker.process.alive && !worker.paused && worker.busy < worker.concurrency,
    );
  }

  #add(queue: QueueName, hint: Hint, delayMs: number): void {
    // A hint in a job of its own is added once while it exists; one that shares a job may be there any number of times.
    const shared = this.#scheduler.random.chance(0.5);
    const id = shared ? `shared-${(this.#count += 1)}` : jobId(hint);
    if (this.#jobs[queue].has(id)) return;
    // The delay reorders what was sent in one go.
    const delay = delayMs + this.#scheduler.random.between(0, 5);
    this.#jobs[queue].set(id, { hint, readyAt: this.#scheduler.now + delay, active: false });
    this.#scheduler.outside(delay + 0.1, () => this.handOut());
  }

  #hand(queue: QueueName, id: string, job: Job, worker: SimWorker): void {
    job.active = true;
    worker.busy += 1;
    this.#scheduler.after(
      0,
      () => {
        void worker
          .handle(job.hint)
          .catch(() => {})
          .then(() => {
            worker.busy -= 1;
            if (this.#jobs[queue].get(id) === job) this.#jobs[queue].delete(id);
            this.handOut();
          });
      },
      worker.process,
    );
    this.#watch(queue, id, job, worker);
  }

  /** A dead worker's job stands in the way of its next hint until its lock is found to be lost. */
  #watch(queue: QueueName, id: string, job: Job, worker: SimWorker): void {
    this.#scheduler.outside(STALLED_MS, () => {
      if (this.#jobs[queue].get(id) !== job) return;
      if (worker.process.alive && worker.process.frozenUntil <= this.#scheduler.now) {
        this.#watch(queue, id, job, worker);
        return;
      }
      job.active = false;
      this.handOut();
    });
  }
}
