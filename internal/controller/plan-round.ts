/** Decides which keys a round leaves stored. */
import { isDeepStrictEqual } from 'node:util';
import type { StoredKey } from '../partner/key-document.ts';
import { shareRoom, KEYS_MAX } from '../partner/key-room.ts';
import type { KeySource, Problem, WantedKey } from '../partner/key-secret.ts';
import { ENDED_FREELY, NEARLY_FULL } from './limits.ts';
import type { SecretList } from './secret-source.ts';

export interface Plan {
  readonly keys: readonly StoredKey[];
  readonly put: number;
  /** Hashes. */
  readonly removed: readonly string[];
  readonly problems: readonly Problem[];
}

export function planRound(
  list: Pick<SecretList, 'complete' | 'provesGone'>,
  wanted: ReadonlyMap<string, WantedKey>,
  all: readonly StoredKey[],
  now: Date,
): Plan {
  const stored = new Map(all.map((key) => [key.hash, key]));
  const unsure = unsurePartners(all, list);
  const next = new Map(stored);
  for (const key of wanted.values()) {
    const current = stored.get(key.hash);
    if (current !== undefined && isSame(current, key)) continue;
    if (!list.complete && !isSafeUnseen(current, key, unsure)) continue;
    next.set(key.hash, { ...key, updatedAt: now });
  }
  // An unread Secret does not prove that its keys are gone.
  for (const { hash, source } of all)
    if (!wanted.has(hash) && list.provesGone(source)) next.delete(hash);

  const [first] = all;
  if (first !== undefined && next.size === 0 && all.length > ENDED_FREELY)
    return { keys: all, put: 0, removed: [], problems: [allWouldEnd(first.source, all.length)] };

  const { fitting, over, asked } = shareRoom([...next.values()]);
  const left = new Set(fitting.map(({ hash }) => hash));
  return {
    keys: fitting,
    put: fitting.filter((key) => stored.get(key.hash) !== key).length,
    removed: all.flatMap(({ hash }) => (left.has(hash) ? [] : [hash])),
    problems: [...over.map(tooMany), ...(asked > NEARLY_FULL ? [nearlyFull(asked)] : [])],
  };
}

function allWouldEnd(source: KeySource, count: number): Problem {
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

/**
 * Only new keys of known partners and switching off are safe: an unread Secret may make its partner
 * inactive or own the same key.
 */
function isSafeUnseen(
  stored: StoredKey | undefined,
  wanted: WantedKey,
  unsure: ReadonlySet<string>,
): boolean {
  if (stored === undefined) return wanted.status === 'inactive' || !unsure.has(wanted.partnerId);
  return stored.partnerId === wanted.partnerId && wanted.status === 'inactive';
}

function unsurePartners(
  stored: readonly StoredKey[],
  list: Pick<SecretList, 'provesGone'>,
): ReadonlySet<string> {
  const unsure = stored.filter(
    ({ status, source }) => status === 'inactive' || !list.provesGone(source),
  );
  return new Set(unsure.map(({ partnerId }) => partnerId));
}

function isSame(stored: StoredKey, wanted: WantedKey): boolean {
  return isDeepStrictEqual(stored, { ...wanted, updatedAt: stored.updatedAt });
}
