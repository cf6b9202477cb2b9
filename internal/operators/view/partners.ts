/** Partners and keys: which are active, and why others are not. */
import type { Flagged } from '../../partner/flags.ts';
import { keyIdOf } from '../../partner/api-key.ts';
import { secretName, STATUS_ANNOTATION } from '../../partner/key-secret.ts';
import { smallestBounds } from '../../partner/key-terms.ts';
import type { PartnerKey } from '../../partner/key-store.ts';
import { DAY_MS, later } from '../../platform/process/clock.ts';
import type { SecretProblem } from '../../partner/kept-findings.ts';
import type { Reads } from './reads.ts';
import { fromNow } from './words.ts';

/** Counting more would read the index for seconds. */
export const OPEN_COUNTED = 100_000;

/** Shown in one cell of a list. */
const PROBLEMS_SHOWN = 3;

type FlagMark = Pick<Flagged, 'at' | 'by'>;

const flagsOf = (flagged: readonly Flagged[]) =>
  new Map(flagged.map(({ _id, at, by }): [string, FlagMark] => [_id, { at, by }]));

export type PartnerView = Awaited<ReturnType<typeof partnersView>>[number];

/** `read` is given by a caller that reads the Secrets' problems anyway. */
export async function partnersView(
  { keys, holds }: Pick<Reads, 'keys' | 'holds'>,
  now: Date,
  read = keys.problems.list(),
) {
  const [all, problems, disabled, held] = await Promise.all([
    keys.list(),
    read,
    keys.disabled.list().then(flagsOf),
    holds.list().then(flagsOf),
  ]);
  const byPartner = Map.groupBy(all, ({ partnerId }) => partnerId);
  const broken = Map.groupBy(problems, ({ partnerId }) => partnerId);
  const named = [...broken.keys()].filter((partner) => partner !== undefined);
  const names = new Set([...byPartner.keys(), ...named, ...disabled.keys(), ...held.keys()]);
  return [...names].toSorted().map((partner) => {
    const theirs = byPartner.get(partner) ?? [];
    const kept = theirs.filter(({ revokedAt }) => revokedAt === undefined);
    const { active = [], inactive = [] } = Object.groupBy(usable(theirs, now), (key) => key.status);
    const counts = { active: active.length, inactive: inactive.length };
    const ended = kept.filter((key) => hasEnded(key, now)).length;
    const lastUsedMs = Math.max(0, ...theirs.map((key) => key.lastUsedAt?.getTime() ?? 0));
    const ends = usable(theirs, now).flatMap((key) => key.terms.notAfter?.getTime() ?? []);
    return {
      partner,
      status: disabled.has(partner) ? 'disabled' : statusOf(counts),
      keys: { ...counts, ended },
      lastUsedAt: lastUsedMs === 0 ? undefined : new Date(lastUsedMs),
      /** By the terms of its keys; undefined without a bound. */
      maxPerMinute: smallestBounds(kept.map(({ terms }) => terms)).maxPerMinute,
      /** When the first of its usable keys ends. */
      endsAt: ends.length === 0 ? undefined : new Date(Math.min(...ends)),
      disabled: disabled.get(partner),
      onHold: held.get(partner),
      /** Secrets whose status makes keys inactive, as `namespace/name`. */
      inactiveBy: secretsSwitchingOff(theirs, now),
      problems: broken.get(partner) ?? [],
    };
  });
}

function usable(keys: readonly PartnerKey[], now: Date): PartnerKey[] {
  return keys.filter((key) => key.revokedAt === undefined && !hasEnded(key, now));
}

const hasEnded = ({ terms: { notAfter } }: PartnerKey, now: Date): boolean =>
  notAfter !== undefined && notAfter <= now;

export function secretsSwitchingOff(keys: readonly PartnerKey[], now: Date): string[] {
  const off = usable(keys, now).filter(({ status }) => status === 'inactive');
  return [...new Set(off.map((key) => secretName(key.inactiveBy ?? key.source)))];
}

function statusOf({ active, inactive }: Record<PartnerKey['status'], number>) {
  if (active > 0) return 'active';
  return inactive > 0 ? 'inactive' : 'no keys';
}

/** Says what makes a partner disabled, inactive or on hold. */
export function switchedOffBy(one: PartnerView, now: Date): string {
  const set = (what: string, flag: FlagMark | undefined): string[] =>
    flag === undefined ? [] : [`${what} ${fromNow(flag.at, now)} by ${flag.by}`];
  return [
    ...set('disabled', one.disabled),
    ...one.inactiveBy.map((secret) => `inactive by ${secret}`),
    ...set('put on hold', one.onHold),
  ].join('; ');
}

/** Adds the problems of its Secrets to `switchedOffBy`. */
export function causesOf(one: PartnerView, now: Date): string {
  const [shown, more] = [
    one.problems.slice(0, PROBLEMS_SHOWN),
    one.problems.length - PROBLEMS_SHOWN,
  ];
  return [
    switchedOffBy(one, now),
    ...shown.map(
      ({ secret, message, since }) => `Secret ${secret}: ${message}, since ${fromNow(since, now)}`,
    ),
    ...(more > 0 ? [`${more} more problems of its Secrets`] : []),
  ]
    .filter((words) => words !== '')
    .join('; ');
}

/** Each Secret of a partner: its keys by status, and its problems. */
export function secretsOf(keys: readonly KeyView[], problems: readonly SecretProblem[]) {
  const keysOf = Map.groupBy(keys, ({ secret }) => secret);
  const problemsOf = Map.groupBy(problems, ({ secret }) => secret);
  return [...new Set([...keysOf.keys(), ...problemsOf.keys()])].toSorted().map((secret) => {
    const theirs = keysOf.get(secret) ?? [];
    return {
      secret,
      counts: Object.fromEntries(
        [...Map.groupBy(theirs, ({ status }) => status)].map(([status, all]) => [
          status,
          all.length,
        ]),
      ),
      problems: problemsOf.get(secret) ?? [],
    };
  });
}

/** Names the command that makes the keys of a Secret, or of a `Partner`, active again. */
export function reactivation(secret: string): string {
  const [namespace, name, ofPartner] = secret.split('/');
  if (ofPartner !== undefined)
    return `${secret} is suspended; to undo that: kubectl -n ${namespace} patch partner ${ofPartner} --type merge -p '{"spec":{"suspend":false}}'`;
  return `Secret ${secret} makes keys inactive; to undo that: kubectl -n ${namespace} annotate secret ${name} ${STATUS_ANNOTATION}=active --overwrite`;
}

type KeyView = Awaited<ReturnType<typeof keysView>>[number];

export async function keysView(
  { keys }: Pick<Reads, 'keys'>,
  partner: string | undefined,
  now: Date,
) {
  const [all, flagged] = await Promise.all([keys.list(partner), keys.disabled.list()]);
  const disabled = new Set(flagged.map(({ _id }) => _id));
  return all.map((key) => ({
    key: keyIdOf(key.hash),
    partner: key.partnerId,
    mode: key.terms.test ? 'test' : 'live',
    status: keyStatus(key, disabled.has(key.partnerId), now),
    inactiveBy: key.inactiveBy && secretName(key.inactiveBy),
    secret: secretName(key.source),
    lastUsedAt: key.lastUsedAt,
    unused: isUnused(key, now),
    notAfter: key.terms.notAfter,
    cidrs: key.terms.cidrs,
    revokedAt: key.revokedAt,
  }));
}

const UNUSED_DAYS = 90;

const isUnused = (key: PartnerKey, now: Date): boolean =>
  key.status === 'active' &&
  usable([key], now).length > 0 &&
  (key.lastUsedAt ?? key.updatedAt) < later(now, -UNUSED_DAYS * DAY_MS);

function keyStatus(key: PartnerKey, disabled: boolean, now: Date) {
  if (key.revokedAt !== undefined) return 'revoked';
  if (hasEnded(key, now)) return 'ended';
  return disabled ? 'disabled' : key.status;
}

/** Example: "test, inactive by partner-keys/acme". */
export function keyStatusInWords({ mode, status, inactiveBy, unused }: KeyView): string {
  const by = inactiveBy === undefined ? '' : ` by ${inactiveBy}`;
  const use = unused ? `, unused for ${UNUSED_DAYS} days` : '';
  return (mode === 'test' ? 'test, ' : '') + status + by + use;
}

/** Waiting requests are counted up to `OPEN_COUNTED`. */
export async function holdsView({ holds, submissions }: Pick<Reads, 'holds' | 'submissions'>) {
  return Promise.all(
    (await holds.list()).map(async ({ _id: partner, at, by }) => ({
      partner,
      at,
      by,
      waiting: await submissions.countOpen(partner, OPEN_COUNTED),
    })),
  );
}
