/**
 * Keeps the keys of owners that lose all of them together: a namespace is lost more often than
 * most partners end. Owners are counted, not keys, so that rotations neither arm nor disarm it.
 */
import { type EndedKeys, KEYS_MAX, type OwnerAt, type StoredKey } from '../partner/key-document.ts';
import { isTestOwner, ownerName } from '../partner/key-terms.ts';
import { DAY_MS } from '../platform/process/clock.ts';

/** With more keys than this, at most half of the owners may end within `WINDOW_MS`. */
export const ENDED_FREELY = 3;
const WINDOW_MS = 600_000;

/** What is stored for the next round, by any leader. */
export interface GuardMemory {
  /** Owners whose keys ended unrevoked in the last ten minutes, one row each. */
  readonly ended: readonly EndedKeys[];
  /** Owners that got their first key in the last ten minutes. */
  readonly arrived: readonly OwnerAt[];
}

/** Without keys that were revoked or have ended: a partner with such a key only has none. */
interface GuardedRound {
  readonly now: Date;
  readonly memory: GuardMemory;
  /** The keys before the round. */
  readonly stored: readonly StoredKey[];
  /** The keys after the round if the guard keeps none. */
  readonly next: readonly StoredKey[];
  /** Stored keys that no Secret holds. */
  readonly gone: readonly StoredKey[];
}

/** Keys that stay, because more than half of `before` owners would have lost all keys; or none. */
export interface Loss {
  readonly held: readonly StoredKey[];
  readonly before: number;
}

/** Live keys and test keys are judged apart. */
export function guardKeys(round: GuardedRound): {
  readonly losses: readonly Loss[];
  readonly memory: GuardMemory;
} {
  const { stored, next, gone } = round;
  const now = timeOf(round);
  const owners = new Set(next.map(ownerOf));
  const counts = countsOf(stored);
  const heirs = heirsOf(round, owners);
  const { ended, arrived } = remembered(round.memory, now, heirs);
  const renamed = new Set(heirs.values());
  const isNew = (owner: string): boolean =>
    !counts.has(owner) && !ended.has(owner) && !renamed.has(owner);

  // An owner that has another key has lost none.
  const lost = gone.filter((key) => !owners.has(ownerOf(key)));
  const lately = new Set([...owners, ...ended.keys(), ...lost.map(ownerOf)]);
  // An owner whose key belongs to another one now was renamed.
  const known = [...lately].filter((owner) => !isNew(owner) && !heirs.has(owner));
  const keysOf = (owner: string): number =>
    Math.max(counts.get(owner) ?? 0, ended.get(owner)?.keys ?? 1);
  const areMany = known.reduce((sum, owner) => sum + keysOf(owner), 0) > ENDED_FREELY;
  const losses = [false, true].map((test): Loss => {
    const theirs = known.filter((owner) => isTestOwner(owner) === test);
    const older = theirs.filter((owner) => !arrived.has(owner));
    // A new installation has only owners that came lately.
    const judged = older.length > ENDED_FREELY ? older : theirs;
    const isLoss = areMany && areMostGone(judged, owners);
    const held = lost.filter((key) => isLoss && isTestOwner(ownerOf(key)) === test);
    return { held, before: judged.length };
  });

  const held = new Set(losses.flatMap((loss) => loss.held));
  for (const owner of new Set(gone.filter((key) => !held.has(key)).map(ownerOf)))
    ended.set(owner, { owner, at: now, keys: keysOf(owner) });
  for (const owner of owners) if (isNew(owner)) arrived.set(owner, { owner, at: now });
  return {
    losses,
    memory: {
      ended: latest([...ended.values()]),
      arrived: latest(
        [...arrived.values()].filter(({ owner }) => owners.has(owner) || ended.has(owner)),
      ),
    },
  };
}

/** One owner alone is meant, however many keys it has. */
function areMostGone(before: readonly string[], owners: ReadonlySet<string>): boolean {
  const without = before.filter((owner) => !owners.has(owner)).length;
  return without > 1 && without * 2 > before.length;
}

/** Owners that have no key now, with the one that has a key of theirs: a renamed partner. */
function heirsOf(
  { stored, next }: GuardedRound,
  owners: ReadonlySet<string>,
): ReadonlyMap<string, string> {
  const later = new Map(next.map((key) => [key.hash, ownerOf(key)]));
  const moved = stored.flatMap((key): [string, string][] => {
    const [owner, heir] = [ownerOf(key), later.get(key.hash)];
    return heir === undefined || owners.has(owner) ? [] : [[owner, heir]];
  });
  return new Map(moved);
}

/** Never before what was remembered, by up to a day: another leader's clock may be right. */
function timeOf({ now, memory: { ended, arrived } }: GuardedRound): Date {
  const last = [...ended, ...arrived].reduce((ms, { at }) => Math.max(ms, at.getTime()), 0);
  return new Date(Math.max(now.getTime(), Math.min(last, now.getTime() + DAY_MS)));
}

/** Rows by owner, under its name of today. */
function remembered(
  memory: GuardMemory,
  now: Date,
  heirs: ReadonlyMap<string, string>,
): { readonly ended: Map<string, EndedKeys>; readonly arrived: Map<string, OwnerAt> } {
  const recent = <Row extends OwnerAt>(rows: readonly Row[]): Row[] =>
    rows
      .filter(({ at }) => now.getTime() - at.getTime() < WINDOW_MS)
      .map((row) => ({
        ...row,
        owner: heirs.get(row.owner) ?? row.owner,
        at: row.at > now ? now : row.at,
      }));
  return {
    ended: new Map(recent(memory.ended).map((row) => [row.owner, row])),
    arrived: new Map(recent(memory.arrived).map((row) => [row.owner, row])),
  };
}

function countsOf(keys: readonly StoredKey[]): ReadonlyMap<string, number> {
  const groups = [...Map.groupBy(keys, ownerOf)];
  return new Map(groups.map(([owner, { length }]) => [owner, length]));
}

/** The document has room for this number of rows, and Secrets may name more partners. */
const latest = <Row extends OwnerAt>(rows: readonly Row[]): readonly Row[] =>
  rows.toSorted((one, other) => one.at.getTime() - other.at.getTime()).slice(-KEYS_MAX);

const ownerOf = ({ partnerId, terms }: StoredKey): string => ownerName(partnerId, terms);
