/** Waits out an outage: pauses a worker in this process, probes what was away, and resumes by itself. */
import { backoffMs, pause, withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { QueueName } from '../queue/job.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { PROBE_BACKOFF, PROBE_DEADLINE_MS } from './limits.ts';

export interface Pausable {
  readonly queue: QueueName;
  pause(): void;
  resume(): void;
}

export class OutageGate {
  readonly #worker: Pausable;
  readonly #probe: () => Promise<boolean>;
  readonly #log: Logger;
  readonly #paused: Pick<ProcessorMetrics['workerPaused'], 'set'>;
  readonly #stop = new AbortController();
  #waiting: Promise<void> | undefined;

  /** `probe` answers whether everything the worker needs is there; one that hangs or throws counts as "no". */
  constructor(options: {
    readonly worker: Pausable;
    readonly probe: () => Promise<boolean>;
    readonly log: Logger;
    readonly paused: Pick<ProcessorMetrics['workerPaused'], 'set'>;
  }) {
    this.#worker = options.worker;
    this.#probe = options.probe;
    this.#log = options.log;
    this.#paused = options.paused;
  }

  /** Stops the worker until the probe succeeds. Calls during an outage change nothing. */
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
    const worker = this.#worker;
    const { queue } = worker;
    this.#log.warn({ queue }, 'worker paused: something it needs is away');
    this.#paused.set({ queue }, 1);
    worker.pause();
    for (let probes = 1; !this.#stop.signal.aborted; probes += 1) {
      const ok = await withDeadline(this.#probe(), PROBE_DEADLINE_MS, 'probe').catch(() => false);
      if (ok) {
        worker.resume();
        this.#paused.set({ queue }, 0);
        this.#log.info({ queue, probes }, 'worker resumed');
        return;
      }
      await pause(backoffMs(probes, PROBE_BACKOFF), this.#stop.signal);
    }
  }
}
