/**
 * A model of the queue: jobs are delivered at their time, and may be lost, repeated or reordered.
 */
import type { Hint, Retry, Step } from '../../internal/queue/job.ts';
import type { Scheduler, SimProcess } from './scheduler.ts';
import type { World } from './world.ts';

interface Job {
  readonly hint: Hint | Retry;
  readonly readyAt: number;
}

type Take = (records: readonly Hint[], step: Step) => void;

/** The share of hints behind others, and their longest wait. */
const FULL = 0.3;
const FULL_MS = 1_500;

export class SimQueue {
  readonly #scheduler: Scheduler;
  readonly #weather: World['redis'];
  readonly #exists: boolean;
  readonly #jobs = new Set<Job>();
  #idle: { readonly process: SimProcess; readonly wake: () => void }[] = [];

  constructor(scheduler: Scheduler, weather: World['redis'], exists: boolean) {
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

  flush(): void {
    this.#jobs.clear();
  }

  /** Takes jobs for a worker; they are lost if its process dies. */
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
    // A small delay reorders jobs, and a full queue delays them longer.
    const waits = random.between(0, random.chance(FULL) ? FULL_MS : 5);
    const delay = waits + ('delayMs' in hint ? hint.delayMs : 0);
    this.#jobs.add({ hint, readyAt: this.#scheduler.now + delay });
    this.#scheduler.outside(delay + 0.1, () => this.handOut());
  }
}
