/** What the self-audit finds, counted for people. */
import type { Clock } from '../../platform/process/clock.ts';
import { kinds, type Kind } from '../../self-audit/rules.ts';
import { auditedPages, type AuditStores } from '../../self-audit/walk.ts';
import { totalOf } from './search.ts';

const FINDINGS_LISTED = 20;

export type AuditView = Awaited<ReturnType<typeof auditView>>;

/** Audits everything received at or after `since`. */
export async function auditView(stores: AuditStores, clock: Clock, since: Date | undefined) {
  const found = new Map<Kind, { count: number; readonly ids: string[] }>();
  const requestsByState: Record<string, number> = {};
  const counts = {
    accepted: 0,
    accounts: 0,
    accountsReleased: 0,
    accountsWhoseRequestIsPastRetention: 0,
    putAside: 0,
  };
  for await (const page of auditedPages(stores, clock, { since })) {
    counts.putAside += page.putAside;
    for (const { state, httpStatus } of page.records) {
      requestsByState[state] = (requestsByState[state] ?? 0) + 1;
      if (httpStatus === 202) counts.accepted += 1;
    }
    const { accounts } = page;
    counts.accounts += accounts.length;
    counts.accountsReleased += accounts.filter(({ releasedAt }) => releasedAt !== undefined).length;
    counts.accountsWhoseRequestIsPastRetention += page.pastRetention;
    for (const [kind, id] of page.suspects) {
      const one = found.get(kind) ?? { count: 0, ids: [] };
      one.count += 1;
      if (one.count <= FINDINGS_LISTED) one.ids.push(id);
      found.set(kind, one);
    }
  }
  const findings = [...found].map(([kind, one]) => ({ kind, ...kinds[kind], ...one }));
  const problems = findings.filter(({ weight }) => weight === 'problem');
  return {
    requestsByState,
    ...counts,
    problems: totalOf(problems),
    /** Each has at most `FINDINGS_LISTED` ids. */
    findings,
  };
}
