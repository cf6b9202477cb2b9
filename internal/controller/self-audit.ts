/**
 * Audits what is recent each minute and all that is kept in the background, and exports what it has
 * found until it is settled.
 *
 * A round reads what came within ten minutes, and then goes on with its walk over everything, 20,000
 * documents further. So a small installation is read wholly each minute. Of more than 25 million
 * requests and accounts a walk takes longer than a day.
 */
import { later, type Clock } from '../platform/process/clock.ts';
import { pause } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/log.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { auditedPages, unsettled, type AuditStores, type Suspect } from '../self-audit/walk.ts';
import { kinds, type Kind } from '../self-audit/rules.ts';
import type { LeaderLoop } from './leadership.ts';

/** From the end of a round, which pauses for 20 s by itself. */
const EVERY_MS = 35_000;
const FAILS_AFTER_MS = 1_800_000;
/** A record is overdue after five minutes. */
const RECENT_MS = 600_000;
const WALKED_PAGES = 40;
/** At most 500 documents a pause, or 1,000 a second. */
const BETWEEN_PAGES_MS = 500;
/** Of a kind; further ones are found once these are settled. */
const KEPT = 1_000;
/** A second e-mail stays a second e-mail. */
const MAILED_TWICE_MS = 3_600_000;
/** Ids in the log of a round; each hour of all that is not settled, else of what is new. */
const LOGGED = 20;
const LOG_ALL_MS = 3_600_000;

interface SelfAuditTools {
  readonly stores: AuditStores;
  readonly clock: Clock;
  readonly metrics: ControllerMetrics;
  readonly log: Logger;
}

export function selfAudit({ stores, clock, metrics, log }: SelfAuditTools): LeaderLoop {
  /** What is not settled: when it was found, by kind and id. */
  const found = new Map<Kind, Map<string, Date>>();
  let walk: ReturnType<typeof auditedPages> | undefined;

  let loggedAllAt = new Date(0);
  const open = () =>
    [...found].flatMap(([kind, ids]) => [...ids].map(([id, at]) => ({ kind, id, at })));

  async function forgetSettled(): Promise<void> {
    const before = open();
    const old = later(clock.now(), -MAILED_TWICE_MS);
    const [twice, others] = [
      before.filter(({ kind, at }) => kind === 'mailed_twice' && at < old),
      before.filter(({ kind }) => kind !== 'mailed_twice'),
    ];
    const suspects = others.map(({ kind, id }): Suspect => [kind, id]);
    const still = new Set((await unsettled(suspects, stores, clock)).map(String));
    const settled = others.filter(({ kind, id }) => !still.has(String([kind, id])));
    for (const { kind, id } of [...twice, ...settled]) found.get(kind)?.delete(id);
  }

  return {
    name: 'audit',
    everyMs: EVERY_MS,
    retry: { firstMs: 30_000, capMs: 300_000 },
    failsAfterMs: FAILS_AFTER_MS,
    async run(term) {
      const added: Suspect[] = [];
      const add = async (suspects: readonly Suspect[]): Promise<void> => {
        for (const [kind, id] of suspects) {
          const ids = found.get(kind) ?? new Map<string, Date>();
          found.set(kind, ids);
          if (ids.has(id) || ids.size >= KEPT) continue;
          ids.set(id, clock.now());
          added.push([kind, id]);
        }
        await pause(BETWEEN_PAGES_MS, term);
        term.throwIfAborted();
      };
      await forgetSettled();
      const since = later(clock.now(), -RECENT_MS);
      for await (const { suspects } of auditedPages(stores, clock, since)) await add(suspects);
      walk ??= auditedPages(stores, clock);
      for (let pages = 0; pages < WALKED_PAGES; pages += 1) {
        const { done, value } = await walk.next();
        if (done === true) {
          walk = undefined;
          break;
        }
        await add(value.suspects.filter(([kind]) => kind !== 'mailed_twice'));
      }
      for (const kind of Object.keys(kinds) as Kind[])
        metrics.auditFindings.set({ kind }, found.get(kind)?.size ?? 0);
      const logsAll = clock.now() >= later(loggedAllAt, LOG_ALL_MS);
      if (logsAll) loggedAllAt = clock.now();
      const logged = logsAll ? open().map(({ kind, id }): Suspect => [kind, id]) : added;
      for (const [kind, id] of logged.slice(0, LOGGED))
        log.warn({ kind, id }, 'not as it should be');
    },
    forget() {
      found.clear();
      walk = undefined;
      loggedAllAt = new Date(0);
      metrics.auditFindings.reset();
    },
  };
}
