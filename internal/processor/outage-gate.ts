/** Pauses the workers while the database is away. */
import { backoffMs, pause, withDeadline } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/log.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';

const PROBE_BACKOFF = { firstMs: 250, capMs: 5_000 } as const;
export const PROBE_DEADLINE_MS = 15_000;

interface Pausable {
  pause(): void;
  resume(): void;
}

interface OutageTools {
  /** A set without a majority still answers reads. */
  readonly takesWrites: () => Promise<boolean>;
  readonly log: Logger;
  readonly metrics: Pick<ProcessorMetrics, 'workerPaused'>;
}

export class OutageGate {
  readonly #tools: OutageTools;
  readonly #workers: Pausable[] = [];
  readonly #stop = new AbortController();
  #waiting: Promise<void> | undefined;

  constructor(tools: OutageTools) {
    this.#tools = tools;
    this.#show(0);
  }

  /** Ends what is still retried when the processor closes. */
  get closed(): AbortSignal {
    return this.#stop.signal;
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
    const { takesWrites, log } = this.#tools;
    log.warn('work paused: the database is away');
    this.#show(1);
    for (const worker of this.#workers) worker.pause();
    for (let probes = 1; !this.closed.aborted; probes += 1) {
      const probe = withDeadline(takesWrites(), PROBE_DEADLINE_MS, 'probe');
      if (await probe.catch(() => false)) {
        for (const worker of this.#workers) worker.resume();
        this.#show(0);
        log.info({ probes }, 'work resumed');
        return;
      }
      await pause(backoffMs(probes, PROBE_BACKOFF), this.closed);
    }
  }

  #show(paused: 0 | 1): void {
    this.#tools.metrics.workerPaused.set({ waits_for: 'database' }, paused);
  }
}
