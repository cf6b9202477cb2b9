/** What must wait: all work while the database is away, and that of partners on hold. */
import { backoffMs, pause, withDeadline } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/log.ts';
import type { WriteContact } from '../platform/stores/mongo.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import type { PartnerHolds } from '../partner/flags.ts';
import type { PlainGauge } from '../platform/process/registry.ts';

const PROBE_BACKOFF = { firstMs: 250, capMs: 5_000 } as const;
export const PROBE_DEADLINE_MS = 15_000;

interface Pausable {
  pause(): void;
  resume(): void;
}

interface OutageTools {
  /** A set without a majority still answers reads. Rejects with what prevents writes. */
  readonly takesWrites: () => Promise<boolean>;
  readonly contact?: Pick<WriteContact, 'failed' | 'ok'>;
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

  /** A write has failed; work goes on. */
  note(error: unknown): void {
    this.#tools.contact?.failed(error);
  }

  /** Pauses all work until the database takes writes. */
  wait(cause?: unknown): void {
    if (cause !== undefined) this.note(cause);
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
      const isWell = await probe.catch((error: unknown) => {
        this.note(error);
        return false;
      });
      if (isWell) {
        this.#tools.contact?.ok();
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

/* Which partners are on hold. */

export class Holds {
  readonly #flags: Pick<PartnerHolds, 'list'>;
  readonly #onHold: PlainGauge;
  #partners: ReadonlySet<string> = new Set();

  constructor(flags: Pick<PartnerHolds, 'list'>, onHold: PlainGauge) {
    this.#flags = flags;
    this.#onHold = onHold;
  }

  has(partnerId: string | undefined): boolean {
    return partnerId !== undefined && this.#partners.has(partnerId);
  }

  partners(): readonly string[] {
    return [...this.#partners];
  }

  /** Keeps the last known holds while they cannot be read. */
  async refresh(): Promise<void> {
    const onHold = await this.#flags.list();
    this.#partners = new Set(onHold.map(({ _id }) => _id));
    this.#onHold.set(onHold.length);
  }
}
