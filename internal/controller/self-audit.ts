/** Audits what is new, slowly, and exports what it finds. */
import { later, type Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { auditView, type AuditStores } from '../view/audit.ts';
import { kinds } from '../view/check-records.ts';
import type { LeaderLoop } from './leadership.ts';

const EVERY_MS = 3_600_000;
/** A record that came just before a round was too young to be overdue in it. */
const OVERLAP_MS = 600_000;
/** At most 500 documents a pause, or 1,000 a second. */
const BETWEEN_PAGES_MS = 500;

interface SelfAuditTools {
  readonly stores: AuditStores;
  readonly clock: Clock;
  readonly metrics: ControllerMetrics;
}

export function selfAudit({ stores, clock, metrics }: SelfAuditTools): LeaderLoop {
  /** When the last complete round of this term began. */
  let last: Date | undefined;
  return {
    name: 'audit',
    everyMs: EVERY_MS,
    retry: { firstMs: 30_000, capMs: 300_000 },
    failsAfterMs: 3 * EVERY_MS,
    async run(term) {
      const began = clock.now();
      const since = later(last ?? later(began, -EVERY_MS), -OVERLAP_MS);
      const { findings } = await auditView(stores, clock, since, async () => {
        await pause(BETWEEN_PAGES_MS, term);
        term.throwIfAborted();
      });
      for (const kind of Object.keys(kinds))
        metrics.auditFindings.set({ kind }, findings.find((one) => one.kind === kind)?.count ?? 0);
      last = began;
    },
    forget() {
      last = undefined;
      metrics.auditFindings.reset();
    },
  };
}
