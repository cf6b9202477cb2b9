/** Decides which keys a round leaves stored. */
import { isDeepStrictEqual } from 'node:util';
import type { StoredKey } from '../partner/key-document.ts';
import { shareRoom, KEYS_MAX } from '../partner/key-room.ts';
import type { Problem, WantedKey } from '../partner/key-secret.ts';
import type { SecretList } from './secret-source.ts';

/** When more keys than this would end and none is left, a namespace was probably lost. */
export const ENDED_FREELY = 3;
/** Of the room for keys; the rest is time to remove old keys. */
const NEARLY_FULL = 0.8;

export interface Plan {
  readonly keys: readonly StoredKey[];
  readonly put: number;
  /** Hashes. */
  readonly removed: readonly string[];
  readonly problems: readonly Problem[];
}

/** `wanted` and `stored` are by hash. */
export function planRound(
  list: Pick<SecretList, 'complete' | 'provesGone'>,
  wanted: ReadonlyMap<string, WantedKey>,
  stored: ReadonlyMap<string, StoredKey>,
  now: Date,
): Plan {
  const all = [...stored.values()];
  const unsure = new Set(
    all
      .filter(({ status, source }) => status === 'inactive' || !list.provesGone(source))
      .map(({ partnerId }) => partnerId),
  );
  const next = new Map(stored);
  for (const key of wanted.values()) {
    const { hash, partnerId, status } = key;
    const current = stored.get(hash);
    if (isDeepStrictEqual(current, { ...key, updatedAt: current?.updatedAt })) continue;
    // An unread Secret may make its partner inactive, or own the same key.
    const isSafe =
      list.complete ||
      (current === undefined
        ? status === 'inactive' || !unsure.has(partnerId)
        : status === 'inactive' && partnerId === current.partnerId);
    if (isSafe) next.set(hash, { ...key, updatedAt: now });
  }
  // An unread Secret does not prove that its keys are gone.
  for (const { hash, source } of all)
    if (!wanted.has(hash) && list.provesGone(source)) next.delete(hash);

  const [first] = all;
  if (first !== undefined && next.size === 0 && all.length > ENDED_FREELY)
    return { keys: all, put: 0, removed: [], problems: [allWouldEnd(first, all.length)] };

  const { fitting, over, asked } = shareRoom([...next.values()]);
  const left = new Set(fitting.map(({ hash }) => hash));
  return {
    keys: fitting,
    put: fitting.filter((key) => stored.get(key.hash) !== key).length,
    removed: all.map(({ hash }) => hash).filter((hash) => !left.has(hash)),
    problems: [...over.map(tooMany), ...(asked > NEARLY_FULL ? [nearlyFull(asked)] : [])],
  };
}

function allWouldEnd({ source }: StoredKey, count: number): Problem {
  const message = `the Secrets that were read would end all ${count} partner keys, those of this Secret too, so none was ended: apply the Secrets again, or end access with "partner-ingest partner disable"`;
  return { source, code: 'all_keys_would_end', message };
}

function tooMany({ source }: StoredKey): Problem {
  const message = `there is room for ${KEYS_MAX} keys, and this partner has more than its share: a key of this Secret does not count; remove old keys`;
  return { source, code: 'too_many_keys', message };
}

function nearlyFull(asked: number): Problem {
  const message = `the partner Secrets ask for ${Math.round(asked * 100)} % of the room for ${KEYS_MAX} keys; beyond 100 % the partners with the most keys lose their newest`;
  return { source: { namespace: '', name: '', uid: '' }, code: 'keys_nearly_full', message };
}
