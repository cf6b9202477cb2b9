/**
 * Audits recent requests and accounts each minute, all others in the background; exports findings
 * until they are settled.
 *
 * A round reads what came within ten minutes and what was put aside, then 20,000 documents of its
 * walk over everything: a small installation each minute, 25 million documents in a day. A new
 * leader continues the walk.
 */
import { later, type Clock } from '../platform/process/clock.ts';
import { pause } from '../platform/process/deadline.ts';
import type { Logger } from '../platform/process/log.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { Finding, KeptFindings } from '../partner/kept-findings.ts';
import { kinds, type Kind, type Suspect } from '../self-audit/rules.ts';
import { auditedPages, unsettled, whereAside, type AuditStores } from '../self-audit/walk.ts';
import type { LeaderLoop } from './leadership.ts';

/** Pause between rounds; a full round itself pauses for 20 s. */
const EVERY_MS = 35_000;
const FAILS_AFTER_MS = 1_800_000;
/** Ten minutes, because a record is overdue after five. */
const RECENT_MS = 600_000;
const WALKED_PAGES = 40;
/** A page has at most 500 documents: at most 1,000 a second. */
const BETWEEN_PAGES_MS = 500;
/** Findings of each kind; further ones are found once these are settled. */
const KEPT = 1_000;
/** Findings of each kind that are stored for the next leader and the console. */
const STORED = 100;
/** Ends a finding that nothing can settle. */
const MAILED_TWICE_MS = 3_600_000;
/** Of ids in a line of the log. A round logs new findings, once an hour all open ones. */
const LOGGED = 20;
const LOG_ALL_MS = 3_600_000;

interface SelfAuditTools {
  readonly stores: AuditStores;
  readonly kept: KeptFindings;
  readonly clock: Clock;
  readonly metrics: ControllerMetrics;
  readonly log: Logger;
}

export function selfAudit({ stores, kept, clock, metrics, log }: SelfAuditTools): LeaderLoop {
  /** Open findings: when each was found, by kind and id. */
  const found = new Map(Object.keys(kinds).map((kind) => [kind as Kind, new Map<string, Date>()]));
  let walk: ReturnType<typeof auditedPages> | undefined;
  let reached: string | undefined;
  let isResumed = false;

  let loggedAllAt = new Date(0);
  const open = (max = KEPT): Finding<Kind>[] =>
    [...found].flatMap(([kind, ids]) => listed(kind, ids).slice(0, max));

  async function resume(): Promise<void> {
    const last = await kept.read();
    // Another version may know other kinds.
    for (const { kind, id, at } of last.found) found.get(kind as Kind)?.set(id, at);
    reached = last.reached;
    isResumed = true;
  }

  return {
    name: 'audit',
    everyMs: EVERY_MS,
    retry: { firstMs: 30_000, capMs: 300_000 },
    failsAfterMs: FAILS_AFTER_MS,
    async run(term) {
      if (!isResumed) await resume();
      const added: Omit<Finding<Kind>, 'at'>[] = [];
      const add = async (suspects: readonly Suspect[]): Promise<void> => {
        for (const [kind, id] of suspects) {
          const ids = found.get(kind)!;
          if (ids.has(id) || ids.size >= KEPT) continue;
          ids.set(id, clock.now());
          added.push({ kind, id });
        }
        await pause(BETWEEN_PAGES_MS, term);
        term.throwIfAborted();
      };
      for (const { kind, id } of await settledOf(open(), stores, clock))
        found.get(kind)?.delete(id);
      const { suspects: changed } = await whereAside(stores, clock);
      await add(changed.filter(([kind]) => kind !== 'mailed_twice'));
      const since = later(clock.now(), -RECENT_MS);
      for await (const { suspects } of auditedPages(stores, clock, { since })) await add(suspects);
      walk ??= auditedPages(stores, clock, { after: reached });
      for (let pages = 0; pages < WALKED_PAGES; pages += 1) {
        const { done, value } = await walk.next().catch((error: unknown) => {
          walk = undefined;
          throw error;
        });
        if (done === true) {
          [walk, reached] = [undefined, undefined];
          break;
        }
        await add(value.suspects.filter(([kind]) => kind !== 'mailed_twice'));
        reached = value.reached;
      }
      await kept.keep(reached, open(STORED));
      for (const [kind, ids] of found) metrics.auditFindings.set({ kind }, ids.size);
      const logsAll = clock.now() >= later(loggedAllAt, LOG_ALL_MS);
      if (logsAll) loggedAllAt = clock.now();
      const logged = logsAll ? open() : added;
      for (const { kind, id } of logged.slice(0, LOGGED))
        log.warn({ kind, id }, 'not as it should be');
    },
    forget() {
      for (const ids of found.values()) ids.clear();
      [walk, reached, isResumed] = [undefined, undefined, false];
      loggedAllAt = new Date(0);
      metrics.auditFindings.reset();
    },
  };
}

const listed = (kind: Kind, ids: ReadonlyMap<string, Date>): Finding<Kind>[] =>
  [...ids].map(([id, at]) => ({ kind, id, at }));

async function settledOf(
  findings: readonly Finding<Kind>[],
  stores: AuditStores,
  clock: Clock,
): Promise<Finding<Kind>[]> {
  const still = await unsettled(findings, stores, clock);
  const old = later(clock.now(), -MAILED_TWICE_MS);
  return findings.filter((one) => !still.has(one) || (one.kind === 'mailed_twice' && one.at < old));
}
