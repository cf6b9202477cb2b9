/** Pauses the workers while the database is away. */
import { backoffMs, pause, withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { PROBE_BACKOFF, PROBE_DEADLINE_MS } from './limits.ts';

export interface Pausable {
  pause(): void;
  resume(): void;
}

export class OutageGate {
  readonly #workers: Pausable[];
  readonly #probe: () => Promise<boolean>;
  readonly #log: Logger;
  readonly #paused: { set(value: number): void };
  readonly #stop = new AbortController();
  #waiting: Promise<void> | undefined;

  constructor(options: {
    readonly workers: readonly Pausable[];
    readonly probe: () => Promise<boolean>;
    readonly log: Logger;
    readonly paused: { set(value: number): void };
  }) {
    this.#workers = [...options.workers];
    this.#probe = options.probe;
    this.#log = options.log;
    this.#paused = options.paused;
  }

  add(worker: Pausable): void {
    this.#workers.push(worker);
    if (this.#waiting !== undefined) worker.pause();
  }

  wait(): void {
    if (this.#waiting !== undefined) return;
    this.#waiting = this.#waitOut().finally(() => {
      this.#waiting = undefined;
    });
  }

  close(): void {
    this.#stop.abort();
  }

  async #waitOut(): Promise<void> {
    this.#log.warn('work paused: the database is away');
    this.#paused.set(1);
    for (const worker of this.#workers) worker.pause();
    for (let probes = 1; !this.#stop.signal.aborted; probes += 1) {
      const ok = await withDeadline(this.#probe(), PROBE_DEADLINE_MS, 'probe').catch(() => false);
      if (ok) {
        for (const worker of this.#workers) worker.resume();
        this.#paused.set(0);
        this.#log.info({ probes }, 'work resumed');
        return;
      }
      await pause(backoffMs(probes, PROBE_BACKOFF), this.#stop.signal);
    }
  }
}
