/** What became of a partner's requests in a period: by outcome, by reason, by key and address. */
import { handOversOf } from '../../account/mail-ledger.ts';
import { ownerName } from '../../partner/key-terms.ts';
import { later } from '../../platform/process/clock.ts';
import type { Reads } from './reads.ts';
import { errorOf, factInWords } from './words.ts';
import { toneOf, type Tone } from './request.ts';
import type { State } from '../../submission/states.ts';
import type { KindGroup, TurnedAwayCount } from '../../submission/support-queries.ts';
import { relaySaid } from './timeline.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** Each period has about 50 to 60 parts in its chart. */
const lengths = {
  '1h': { ms: HOUR_MS, partMs: MINUTE_MS },
  '24h': { ms: 24 * HOUR_MS, partMs: HOUR_MS / 2 },
  '7d': { ms: 168 * HOUR_MS, partMs: 3 * HOUR_MS },
} as const;
export type Period = keyof typeof lengths;
export const periods = Object.keys(lengths) as Period[];

/** If counting takes longer, only the newest are counted, and the page says so. */
export const COUNTED_WITHIN_MS = 2_000;
const REASONS_SHOWN = 30;

const LINES = ['good', 'open', 'other', 'bad', 'away'] as const;
type ChartLine = (typeof LINES)[number];

interface OutcomeCount {
  /** `turned away`: counted without a record. */
  readonly state: State | 'turned away';
  readonly tone: Tone;
  readonly count: number;
  /** The error of the newest request in this state, if it has one. */
  readonly said?: Said | undefined;
}

interface Said {
  readonly request: string;
  readonly words: string;
}

export async function periodView(
  {
    partner,
    period,
    now,
  }: { readonly partner: string; readonly period: Period; readonly now: Date },
  reads: Pick<Reads, 'submissions' | 'accounts'>,
) {
  const { submissions } = reads;
  const { ms, partMs } = lengths[period];
  // Whole parts, the last of which has just begun.
  const since = new Date((Math.floor((now.getTime() - ms) / partMs) + 1) * partMs);
  const [{ groups, from }, away] = await Promise.all([
    submissions.kinds({ partner, since, until: now, partMs, withinMs: COUNTED_WITHIN_MS }),
    submissions.turnedAwaySince(since, now, partner),
  ]);
  const awayFrom = away.from > from ? away.from : from;
  const counted = away.counts.filter(({ windowStart }) => windowStart >= awayFrom);
  const count = (all: readonly { readonly count: number }[]): number =>
    all.reduce((sum, one) => sum + one.count, 0);
  const outcomes: OutcomeCount[] = await Promise.all(
    [...Map.groupBy(groups, ({ state }) => state)].map(async ([state, theirs]) => ({
      state,
      tone: toneOf(state),
      count: count(theirs),
      said: await saidOf(theirs, reads),
    })),
  );
  if (counted.length > 0)
    outcomes.push({ state: 'turned away', tone: 'other', count: count(counted) });
  return {
    since,
    until: now,
    /** Later than `since` if not all could be counted. */
    from,
    /** The same for requests without a record. */
    awayFrom,
    total: count(outcomes),
    /** Requests that are on the list. */
    recorded: count(groups),
    outcomes: outcomes.toSorted((one, other) => other.count - one.count),
    reasons: reasonsOf(groups),
    turnedAway: turnedAwayRows(counted, groups),
    chart: chartOf(groups, counted, { since, partMs, parts: Math.ceil(ms / partMs) }),
  };
}

/** The last error of the newest request, with the relay's answer, for people. */
async function saidOf(
  groups: readonly KindGroup[],
  { submissions, accounts }: Pick<Reads, 'submissions' | 'accounts'>,
): Promise<Said | undefined> {
  const [request = ''] = groups
    .map(({ newest }) => newest)
    .toSorted()
    .toReversed();
  const record = await submissions.byId(request);
  const error = record && errorOf(record);
  if (error === undefined) return undefined;
  const account = await accounts.find('requestId', request);
  const last = handOversOf(account?.mail).at(-1);
  return { request, words: error + (last?.result === 'accepted' ? '' : relaySaid(last)) };
}

/** A request with two reasons is in both lines; most frequent first. */
function reasonsOf(groups: readonly KindGroup[]) {
  const all = groups.flatMap(({ state, why, error, count }) => {
    const codes = why.map(({ field, code }) => ({ state, field, code, words: code, count }));
    if (why.length > 0 || error === null) return codes;
    // A search finds an error by its stored words.
    return [{ state, field: '', code: error.words, words: factInWords(error), count }];
  });
  const alike = Map.groupBy(all, ({ state, field, code }) => JSON.stringify([state, field, code]));
  const lines = [...alike.values()].map((same) => ({
    ...same[0]!,
    count: same.reduce((sum, one) => sum + one.count, 0),
  }));
  return lines.toSorted((one, other) => other.count - one.count).slice(0, REASONS_SHOWN);
}

/** Times in seconds, and a line for each tone. */
function chartOf(
  groups: readonly KindGroup[],
  away: readonly { readonly windowStart: Date; readonly count: number }[],
  {
    since,
    partMs,
    parts,
  }: { readonly since: Date; readonly partMs: number; readonly parts: number },
) {
  const chart = {
    at: Array.from({ length: parts }, (_, part) => later(since, part * partMs).getTime() / 1_000),
  };
  const lines = Object.fromEntries(
    LINES.map((line) => [line, Array<number>(parts).fill(0)]),
  ) as Record<ChartLine, number[]>;
  const add = (line: ChartLine, part: number, count: number): void => {
    const at = Math.min(parts - 1, Math.max(0, part));
    lines[line][at] = (lines[line][at] ?? 0) + count;
  };
  for (const { part, state, address, count } of groups)
    add(address === null ? toneOf(state) : 'away', part, count);
  for (const { windowStart, count } of away)
    add('away', Math.floor((windowStart.getTime() - since.getTime()) / partMs), count);
  return { ...chart, ...lines };
}

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
