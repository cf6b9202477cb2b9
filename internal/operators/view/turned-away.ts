/** Requests turned away with a 4xx: by partner, key, address and status. */
import { ownerName } from '../../partner/key-terms.ts';
import {
  TURNED_AWAY,
  type KindGroup,
  type TurnedAwayCount,
} from '../../submission/support-queries.ts';
import type { Reads } from './reads.ts';

/** If counting takes longer, only the newest are counted, and the page says so. */
export const COUNTED_WITHIN_MS = 2_000;

/** Cut, because a flood comes from many addresses. */
const ROWS_SHOWN = 20;

export interface TurnedAwayRow {
  /** Absent, like `key`, if no key was known. */
  readonly partner?: string | undefined;
  readonly key?: string | undefined;
  readonly address: string;
  readonly status: number;
  readonly why: string;
  readonly count: number;
  /** Each of these requests has a record. */
  readonly recorded: boolean;
}

/**
 * Requests turned away with a 4xx, by partner, key, address and status. Most frequent first;
 * `further` is how many rows are left out.
 */
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

/** Of one partner, or its tests, in a range. `from` is later than `since` if not all was read in time. */
export async function turnedAwayView(
  { partner, test, since, until }: TurnedAwayAsked,
  { submissions }: Pick<Reads, 'submissions'>,
) {
  const [away, recorded] = await Promise.all([
    submissions.turnedAwaySince(since, until, { partner, test }),
    test
      ? { groups: [], from: since }
      : submissions.kinds({
          partner,
          states: TURNED_AWAY,
          since,
          until,
          withinMs: COUNTED_WITHIN_MS,
        }),
  ]);
  const from = away.from > recorded.from ? away.from : recorded.from;
  const counts = away.counts.filter(({ windowStart }) => windowStart >= from);
  return { ...turnedAwayRows(counts, recorded.groups), from };
}

interface TurnedAwayAsked {
  readonly partner: string;
  readonly test: boolean;
  readonly since: Date;
  readonly until: Date;
}
