/** What was turned away with 429 or 4xx: by partner, key, address and code. */
import { ownerName } from '../partner/key-terms.ts';
import type { KindGroup, TurnedAwayCount } from '../submission/support-queries.ts';

/** A flood comes from many addresses. */
const ROWS_SHOWN = 20;

export interface TurnedAwayRow {
  /** Absent for a stranger. */
  readonly partner?: string | undefined;
  readonly key?: string | undefined;
  readonly address: string;
  readonly status: number;
  readonly why: string;
  readonly count: number;
  /** Each of them has a record. */
  readonly recorded: boolean;
}

/** Most frequent first, and how many rows are left off. */
export function turnedAwayRows(counts: readonly TurnedAwayCount[], recorded: readonly KindGroup[]) {
  const rows = new Map<string, TurnedAwayRow>();
  const all = counts.map(
    ({ partnerId, keyId: key, address, status = 429, limits = [], ...one }) => {
      const partner = partnerId && ownerName(partnerId, one);
      const why = limits.join(', ');
      return { partner, key, address, status, why, count: one.count, recorded: false };
    },
  );
  for (const row of [...all, ...recorded.flatMap(recordedRow)]) {
    const id = [row.partner, row.key, row.address, row.status, row.recorded].join('\n');
    const known = rows.get(id);
    const count = (known?.count ?? 0) + row.count;
    rows.set(id, { ...row, why: row.why || (known?.why ?? ''), count });
  }
  const sorted = [...rows.values()].toSorted((one, other) => other.count - one.count);
  return { rows: sorted.slice(0, ROWS_SHOWN), further: sorted.slice(ROWS_SHOWN).length };
}

function recordedRow({ partner, key, address, status, count }: KindGroup): TurnedAwayRow[] {
  if (address === null) return [];
  const whose = { partner: partner ?? undefined, key: key ?? undefined, address };
  return [{ ...whose, status, why: '', count, recorded: true }];
}
