/** The operators' trail as a chain: each entry holds the digest of the one before it, so that a change shows. Pure. */
import { createHash } from 'node:crypto';
import type { TrailEntry } from './entry.ts';

/** Where the chain does not hold, and how: `changed` names the entry itself, `missing` the one that follows. */
export interface ChainBreak {
  readonly kind: 'trail_changed' | 'trail_missing';
  readonly id: string;
}

export interface ChainReport {
  readonly entries: number;
  readonly breaks: readonly ChainBreak[];
  /** The newest entry: compared with its copy in a log, it shows whether later ones are gone. */
  readonly last?: { readonly seq: number; readonly sha256: string };
}

/** SHA-256 over every field, in the order of their names. */
export function digestOf(entry: TrailEntry): string {
  return createHash('sha256')
    .update(JSON.stringify(sorted(entry)))
    .digest('hex');
}

function sorted(entry: object): unknown[] {
  return Object.entries(entry)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, value]) => [name, isMap(value) ? sorted(value) : value]);
}

function isMap(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !(value instanceof Date);
}

/** Checks entries in the order of `seq`. An entry that is missing is no break where it was to be deleted by `now`. */
export async function checkChain(entries: AsyncIterable<TrailEntry>, now: Date): Promise<ChainReport> {
  const breaks: ChainBreak[] = [];
  let count = 0;
  let before: TrailEntry | undefined;
  for await (const entry of entries) {
    count += 1;
    const { seq = 0, previous } = entry;
    if (before !== undefined && seq === (before.seq ?? 0) + 1) {
      if (previous?.sha256 !== digestOf(before)) breaks.push({ kind: 'trail_changed', id: before._id });
    } else if (seq !== 1 && (previous === undefined || previous.expiresAt > now)) {
      breaks.push({ kind: 'trail_missing', id: entry._id });
    }
    before = entry;
  }
  const last = before === undefined ? {} : { last: { seq: before.seq ?? 0, sha256: digestOf(before) } };
  return { entries: count, breaks, ...last };
}
