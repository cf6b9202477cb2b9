/** Audits what is new, slowly, and exports what it finds. Only the leader reads the stores. */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Loops } from '../platform/loop.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { auditView, type AuditStores } from '../view/audit.ts';
import { kinds } from '../view/check-records.ts';

const EVERY_MS = 3_600_000;
/** A record that came just before a round was too young to be overdue in it. */
const OVERLAP_MS = 600_000;
/** At most 500 documents a pause, or 1,000 a second. */
const BETWEEN_PAGES_MS = 500;
const LOOK_EVERY_MS = 10_000;
const RETRY = { firstMs: 30_000, capMs: 300_000 } as const;
const FAILS_AFTER_MS = 3 * EVERY_MS;

interface SelfAuditTools {
  readonly stores: AuditStores;
  readonly clock: Clock;
  readonly leads: () => boolean;
  readonly metrics: Pick<ControllerMetrics, 'auditFindings'>;
}

export class SelfAudit {
  readonly #tools: SelfAuditTools;
  /** When the last complete round of this leader began. */
  #last: Date | undefined;

  constructor(tools: SelfAuditTools) {
    this.#tools = tools;
  }

  start(loops: Pick<Loops<'audit'>, 'start'>): void {
    loops.start({
      name: 'audit',
      everyMs: LOOK_EVERY_MS,
      retry: RETRY,
      failsAfterMs: FAILS_AFTER_MS,
      run: (signal) => this.round(signal),
    });
  }

  /** Does nothing before the hour is over. Rejects if the database cannot be read. */
  async round(signal?: AbortSignal): Promise<void> {
    const { stores, clock, leads, metrics } = this.#tools;
    if (!leads()) {
      this.#last = undefined;
      metrics.auditFindings.reset();
      return;
    }
    const began = clock.now();
    const last = this.#last ?? new Date(began.getTime() - EVERY_MS);
    if (this.#last !== undefined && began.getTime() - last.getTime() < EVERY_MS) return;
    const since = new Date(last.getTime() - OVERLAP_MS);
    const { findings } = await auditView(stores, clock, since, async () => {
      await pause(BETWEEN_PAGES_MS, signal);
      signal?.throwIfAborted();
      if (!leads()) throw new Error('another controller leads');
    });
    for (const kind of Object.keys(kinds))
      metrics.auditFindings.set({ kind }, findings.find((one) => one.kind === kind)?.count ?? 0);
    this.#last = began;
  }
}
