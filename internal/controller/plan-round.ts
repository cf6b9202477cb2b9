/** Decides what one round changes in the stored keys and what it defers. */
import { isDeepStrictEqual } from 'node:util';
import type { KeySource, Problem, WantedKey } from '../partner/key-secret.ts';
import { DEFER_MS, type KeyChange, type PartnerKey } from '../partner/key-store.ts';
import { ENDED_FREELY, MAX_KEYS } from './limits.ts';
import type { SecretList } from './secret-source.ts';

export interface Plan {
  readonly changes: readonly KeyChange[];
  readonly problems: readonly Problem[];
  readonly deferred: number;
}

interface Ending {
  readonly stored: PartnerKey;
  readonly change: Exclude<KeyChange, { kind: 'defer' }>;
}

export function planRound(
  list: Pick<SecretList, 'complete' | 'provesGone'>,
  wanted: ReadonlyMap<string, WantedKey>,
  stored: ReadonlyMap<string, PartnerKey>,
  now: Date,
): Plan {
  const all = [...stored.values()];
  const unsure = unsurePartners(all, list);
  const changes: KeyChange[] = [];
  const endings: Ending[] = [];
  const fresh: WantedKey[] = [];
  for (const key of wanted.values()) {
    const current = stored.get(key.hash);
    if (current !== undefined && current.deferredAt === undefined && isSame(current, key)) continue;
    if (!list.complete && !isSafeUnseen(current, key, unsure)) continue;
    if (current === undefined || current.status === 'removed') fresh.push(key);
    else if (lasts(current, now) && !lasts(key, now))
      endings.push({ stored: current, change: ended(key, now) });
    else changes.push(put(key, current, now));
  }
  // An unread Secret does not prove that its keys are gone.
  const gone = all.filter(({ _id, status, source }) => {
    return status !== 'removed' && !wanted.has(_id) && list.provesGone(source);
  });
  for (const key of gone) {
    if (lasts(key, now))
      endings.push({ stored: key, change: { kind: 'remove', hash: key._id, endedAt: now } });
    else changes.push({ kind: 'remove', hash: key._id, endedAt: key.endedAt });
  }

  const { due, defer, waiting } = brake(endings, all, now);
  const room = Math.max(0, MAX_KEYS - all.filter(({ status }) => status !== 'removed').length);
  return {
    changes: [
      ...changes,
      ...fresh.slice(0, room).map((key) => put(key, stored.get(key.hash), now)),
      ...due,
      ...defer.map(({ _id }): KeyChange => ({ kind: 'defer', hash: _id })),
    ],
    problems: [
      ...[...defer, ...waiting].map(({ source }) => deferredProblem(source)),
      ...fresh.slice(room).map(({ source }) => crowdedProblem(source)),
    ],
    deferred: defer.length + waiting.length,
  };
}

const ended = (key: WantedKey, endedAt: Date): Ending['change'] => ({ kind: 'put', key, endedAt });

function put(key: WantedKey, current: PartnerKey | undefined, now: Date): KeyChange {
  if (!lasts(key, now)) return { kind: 'put', key, endedAt: current?.endedAt };
  const isNew = current === undefined || !lasts(current, now);
  return { kind: 'put', key, activeAt: isNew ? now : undefined, endedAt: undefined };
}

/** Single ends pass. Once most keys end within `DEFER_MS`, further ends wait that long. */
function brake(endings: readonly Ending[], all: readonly PartnerKey[], now: Date) {
  const isDeferred = ({ stored }: Ending): boolean => stored.deferredAt !== undefined;
  const deferred = endings.filter(isDeferred);
  const fresh = endings.filter((ending) => !isDeferred(ending));
  const lost = lostLately(all, now);
  const before = all.filter((key) => lasts(key, now)).length - deferred.length + lost;
  const isMost = lost + fresh.length > ENDED_FREELY && (lost + fresh.length) * 2 > before;
  const isDue = ({ stored: { confirmedAt, deferredAt = now } }: Ending): boolean =>
    confirmedAt !== undefined || now.getTime() - deferredAt.getTime() >= DEFER_MS;
  return {
    due: [
      ...(isMost ? [] : fresh.map(({ change }) => change)),
      // Operators had time to act on these, so they defer no later ends.
      ...deferred.filter(isDue).map(({ change }): KeyChange => ({ ...change, endedAt: undefined })),
    ],
    defer: isMost ? fresh.map(({ stored }) => stored) : [],
    waiting: deferred.filter((ending) => !isDue(ending)).map(({ stored }) => stored),
  };
}

/** A key whose terms end it within a deferral may end now. */
function lasts(key: Pick<PartnerKey, 'status' | 'terms' | 'revokedAt'>, now: Date): boolean {
  const endsAt = key.terms?.notAfter?.getTime() ?? Infinity;
  return (
    key.status === 'active' && key.revokedAt === undefined && endsAt > now.getTime() + DEFER_MS
  );
}

/** A rotation does not count as a loss. */
function lostLately(all: readonly PartnerKey[], now: Date): number {
  const events = all
    .filter(({ revokedAt }) => revokedAt === undefined)
    .flatMap(({ activeAt, endedAt }) => [
      { at: activeAt, lost: -1 },
      { at: endedAt, lost: 1 },
    ])
    .filter(({ at }) => at !== undefined && now.getTime() - at.getTime() < DEFER_MS)
    .toSorted((one, other) => one.at!.getTime() - other.at!.getTime() || one.lost - other.lost);
  return events.reduce((lost, event) => Math.max(0, lost + event.lost), 0);
}

function deferredProblem(source: KeySource): Problem {
  const message =
    'a key of this Secret would end together with most others, and stays active for 10 minutes unless "partner-ingest keys confirm" ends it now';
  return { source, code: 'removal_deferred', message };
}

function crowdedProblem(source: KeySource): Problem {
  const message = `a key of this Secret is not used: there are ${MAX_KEYS} keys, which is the most`;
  return { source, code: 'too_many_keys', message };
}

/**
 * Only new keys of known partners and switching off are safe: an unread Secret may make its partner
 * inactive or own the same key.
 */
function isSafeUnseen(
  stored: PartnerKey | undefined,
  wanted: WantedKey,
  unsure: ReadonlySet<string>,
): boolean {
  if (stored === undefined || stored.status === 'removed') {
    return wanted.status === 'inactive' || !unsure.has(wanted.partnerId);
  }
  return stored.partnerId === wanted.partnerId && wanted.status === 'inactive';
}

function unsurePartners(
  stored: readonly PartnerKey[],
  list: Pick<SecretList, 'provesGone'>,
): ReadonlySet<string> {
  const unsure = stored.filter(
    ({ status, source }) =>
      status === 'inactive' || (status === 'active' && !list.provesGone(source)),
  );
  return new Set(unsure.map(({ partnerId }) => partnerId));
}

function isSame(stored: PartnerKey, wanted: WantedKey): boolean {
  return (
    stored.status === wanted.status &&
    stored.partnerId === wanted.partnerId &&
    isDeepStrictEqual(stored.terms ?? {}, wanted.terms) &&
    isDeepStrictEqual(stored.source, wanted.source) &&
    isDeepStrictEqual(stored.inactiveBy, wanted.inactiveBy)
  );
}
