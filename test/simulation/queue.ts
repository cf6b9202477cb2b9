/**
 * Redis as the service sees it: jobs wait, are handed to some worker at their time, and may be
 * lost, repeated or reordered. How jobs carry records is no business of the model.
 */
import type { Hint, Retry, Step } from '../../internal/queue/job.ts';
import type { Scheduler, SimProcess } from './scheduler.ts';

interface Job {
  readonly hint: Hint | Retry;
  readonly readyAt: number;
}

type Take = (records: readonly Hint[], step: Step) => void;

/** Share of hints that wait behind others, and for how long at most. */
const FULL = 0.3;
const FULL_MS = 1_500;

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
  readonly #exists: boolean;
  readonly #jobs = new Set<Job>();
  /** Processes that wait for work. */
  #idle: { readonly process: SimProcess; readonly wake: () => void }[] = [];

  constructor(scheduler: Scheduler, weather: RedisWeather, exists: boolean) {
    this.#scheduler = scheduler;
    this.#weather = weather;
    this.#exists = exists;
  }

  async send(hints: readonly (Hint | Retry)[]): Promise<void> {
    const { random } = this.#scheduler;
    await this.#scheduler.pause(random.between(0.1, 3));
    if (!this.#exists || this.#weather.away) throw new Error('redis is not connected');
    for (const hint of hints) {
      if (!random.chance(this.#weather.lossy)) this.#add(hint);
    }
    await this.#scheduler.pause(random.between(0.1, 3));
    if (random.chance(this.#weather.lossy)) throw new Error('no answer from redis');
  }

  /** Everything in Redis is gone. */
  flush(): void {
    this.#jobs.clear();
  }

  /** Takes jobs for a worker, as consume.ts does. What a process has when it dies is lost. */
  startWorker(process: SimProcess, take: Take, mayTake: () => boolean): void {
    const { random } = this.#scheduler;
    const fetchForEver = async (): Promise<void> => {
      for (;;) {
        if (process.closing) return;
        const hint = mayTake() ? this.#next() : undefined;
        if (hint === undefined)
          await new Promise<void>((wake) => this.#idle.push({ process, wake }));
        await this.#scheduler.pause(random.between(0.1, 3));
        if (hint !== undefined) take([hint], (hint as Partial<Retry>).step ?? 'account');
      }
    };
    this.#scheduler.as(process, () => void fetchForEver());
  }

  /** Wakes the workers; called whenever there may be work. */
  handOut(): void {
    for (const { process, wake } of this.#idle.splice(0)) this.#scheduler.after(0, wake, process);
  }

  #next(): Hint | Retry | undefined {
    if (this.#weather.away) return undefined;
    const { random, now } = this.#scheduler;
    const job = [...this.#jobs].find((one) => one.readyAt <= now);
    if (job !== undefined && !random.chance(this.#weather.repeating)) this.#jobs.delete(job);
    return job?.hint;
  }

  #add(hint: Hint | Retry): void {
    const { random } = this.#scheduler;
    // A little delay reorders what was sent in one go; a queue with much in it keeps a job for
    // longer.
    const waits = random.between(0, random.chance(FULL) ? FULL_MS : 5);
    const delay = waits + ('delayMs' in hint ? hint.delayMs : 0);
    this.#jobs.add({ hint, readyAt: this.#scheduler.now + delay });
    this.#scheduler.outside(delay + 0.1, () => this.handOut());
  }
}
