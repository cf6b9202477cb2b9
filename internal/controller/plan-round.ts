/** Decides which keys a round leaves stored. */
import { isDeepStrictEqual } from 'node:util';
import type { EndedKey, StoredKey } from '../partner/key-document.ts';
import { isTestOwner, ownerName } from '../partner/mode.ts';
import { shareRoom, KEYS_MAX } from '../partner/key-room.ts';
import type { Problem, WantedKey } from '../partner/key-secret.ts';

/** Of more keys than this, half may end in the window; beyond it a namespace was probably lost. */
export const ENDED_FREELY = 3;
const WINDOW_MS = 600_000;
const NAMED = 10;
/** Of the room for keys; the rest is time to remove old keys. */
const NEARLY_FULL = 0.8;

export interface Plan {
  readonly keys: readonly StoredKey[];
  readonly put: number;
  /** Hashes. */
  readonly removed: readonly string[];
  readonly problems: readonly Problem[];
  /** For the plan of the next round. */
  readonly ended: readonly EndedKey[];
}

/** `wanted` and `stored` are by hash. */
export function planRound(
  wanted: ReadonlyMap<string, WantedKey>,
  stored: ReadonlyMap<string, StoredKey>,
  {
    now,
    ended,
    revoked,
  }: {
    readonly now: Date;
    readonly ended: readonly EndedKey[];
    /** By hash: an operator has said that they end. */
    readonly revoked: { has(hash: string): boolean };
  },
): Plan {
  const all = [...stored.values()];
  const next = new Map(stored);
  for (const key of wanted.values()) {
    const current = stored.get(key.hash);
    if (isDeepStrictEqual(current, { ...key, updatedAt: current?.updatedAt })) continue;
    next.set(key.hash, { ...key, updatedAt: now });
  }
  const gone = all.filter(({ hash }) => !wanted.has(hash));
  for (const { hash } of gone) next.delete(hash);

  const owners = new Set([...next.values()].map(ownerOf));
  const recent = ended.filter(({ at }) => Math.abs(now.getTime() - at.getTime()) < WINDOW_MS);
  const unconfirmed = gone.filter(({ hash }) => !revoked.has(hash));
  // What is live is judged apart from tests.
  const losses = [false, true].map((test) =>
    lossOf({
      stored: all.filter((key) => isTestOwner(ownerOf(key)) === test),
      recent: recent.filter(({ owner }) => isTestOwner(owner) === test),
      gone: unconfirmed.filter((key) => isTestOwner(ownerOf(key)) === test),
      owners,
      areMany: all.length + recent.length > ENDED_FREELY,
    }),
  );
  const held = losses.flatMap((loss) => loss.held);
  for (const key of held) next.set(key.hash, key);

  const { fitting, over, asked } = shareRoom([...next.values()]);
  const left = new Set(fitting.map(({ hash }) => hash));
  return {
    keys: fitting,
    put: fitting.filter((key) => stored.get(key.hash) !== key).length,
    removed: all.map(({ hash }) => hash).filter((hash) => !left.has(hash)),
    problems: [
      ...losses.flatMap(wouldEnd),
      ...over.map(tooMany),
      ...(asked > NEARLY_FULL ? [nearlyFull(asked)] : []),
    ],
    ended: [
      ...recent,
      ...unconfirmed
        .filter((key) => !held.includes(key))
        .map((key) => ({ owner: ownerOf(key), at: now })),
    ],
  };
}

interface Loss {
  readonly held: readonly StoredKey[];
  /** Keys at the begin of the window. */
  readonly before: number;
}

/** Which keys stay, because their end would be more than partners mean. `owners` have keys. */
function lossOf({
  stored,
  recent,
  gone,
  owners,
  areMany,
}: {
  readonly stored: readonly StoredKey[];
  readonly recent: readonly EndedKey[];
  readonly gone: readonly StoredKey[];
  readonly owners: ReadonlySet<string>;
  /** There are enough keys for a loss to be judged. */
  readonly areMany: boolean;
}): Loss {
  // An owner that has another key only rotates.
  const lost = gone.filter((key) => !owners.has(ownerOf(key)));
  const without = [...recent.map(({ owner }) => owner), ...lost.map(ownerOf)].filter(
    (owner) => !owners.has(owner),
  );
  const before = stored.length + recent.length;
  // What one partner does alone is meant, however many keys it has.
  const most = Math.max(
    0,
    ...[...Map.groupBy(without, String).values()].map(({ length }) => length),
  );
  const others = without.length - most;
  const isMany = areMany && without.length * 2 > before;
  return { held: isMany && others > 0 && others * 2 >= before - most ? lost : [], before };
}

const ownerOf = ({ partnerId, terms }: StoredKey): string => ownerName(partnerId, terms);

function wouldEnd({ held: [first, ...others], before }: Loss): readonly Problem[] {
  if (first === undefined) return [];
  const partners = [...new Set([first, ...others].map(({ partnerId }) => partnerId))].toSorted();
  const more = partners.length > NAMED ? ` and ${partners.length - NAMED} more` : '';
  const message = `more than half of ${before} partner keys would have ended within ten minutes, so ${others.length + 1} of them stay active, of ${partners.slice(0, NAMED).join(', ')}${more}: apply the Secrets again; if it is meant, confirm each key with "partner-ingest keys revoke"`;
  return [{ source: first.source, code: 'keys_would_end', message }];
}

function tooMany({ source }: StoredKey): Problem {
  const message = `there is room for ${KEYS_MAX} keys, and this partner has more than its share: a key of this Secret does not count; remove old keys`;
  return { source, code: 'too_many_keys', message };
}

function nearlyFull(asked: number): Problem {
  const message = `the partner Secrets ask for ${Math.round(asked * 100)} % of the room for ${KEYS_MAX} keys; beyond 100 % the partners with the most keys lose their newest`;
  return { source: { namespace: '', name: '', uid: '' }, code: 'keys_nearly_full', message };
}
