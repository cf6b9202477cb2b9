/** Partners and keys: who is accepted, and what switched one off. */
import type { Flagged } from '../partner/flags.ts';
import { keyIdOf } from '../partner/api-key.ts';
import { secretName, STATUS_ANNOTATION, type KeySource } from '../partner/key-secret.ts';
import type { PartnerKey } from '../partner/key-store.ts';
import { defined } from '../platform/defined.ts';
import { OPEN_COUNTED } from './limits.ts';
import type { Reads } from './reads.ts';

export interface PartnerView {
  readonly partner: string;
  readonly status: 'active' | 'inactive' | 'disabled' | 'no keys';
  readonly keys: { readonly active: number; readonly inactive: number };
  readonly lastUsedAt?: Date;
  readonly disabled?: Flagged;
  readonly hold?: Flagged;
  /** Secrets whose status makes keys inactive. */
  readonly inactiveBy: readonly KeySource[];
}

export interface KeyView {
  readonly key: string;
  readonly partner: string;
  readonly status: 'active' | 'inactive' | 'disabled' | 'revoked';
  readonly test?: true;
  readonly secret: string;
  readonly inactiveBy?: string;
  readonly lastUsedAt?: Date;
  readonly notAfter?: Date;
  readonly cidrs?: readonly string[];
  readonly changedAt: Date;
  readonly revokedAt?: Date;
}

export async function partnersView(
  { keys, holds }: Pick<Reads, 'keys' | 'holds'>,
  now: Date,
): Promise<PartnerView[]> {
  const [all, disabled, held] = await Promise.all([
    keys.list(undefined),
    keys.disabled(),
    holds.list(),
  ]);
  const byPartner = Map.groupBy(all, ({ partnerId }) => partnerId);
  const names = new Set([...byPartner.keys(), ...[...disabled, ...held].map(({ _id }) => _id)]);
  const flagOf = (flags: readonly Flagged[], name: string) => flags.find(({ _id }) => _id === name);
  return [...names].toSorted().map((name) =>
    partnerView(name, byPartner.get(name) ?? [], now, {
      disabled: flagOf(disabled, name),
      hold: flagOf(held, name),
    }),
  );
}

export function partnerView(
  partner: string,
  keys: readonly PartnerKey[],
  now: Date,
  flags: { readonly disabled?: Flagged | undefined; readonly hold?: Flagged | undefined } = {},
): PartnerView {
  const usable = keys.filter(
    ({ revokedAt, terms }) =>
      revokedAt === undefined && (terms.notAfter === undefined || terms.notAfter > now),
  );
  const active = usable.filter(({ status }) => status === 'active').length;
  const off = usable.filter(({ status }) => status === 'inactive');
  const used = keys.flatMap(({ lastUsedAt }) => (lastUsedAt === undefined ? [] : [lastUsedAt]));
  const sources = off.map(({ inactiveBy, source }) => inactiveBy ?? source);
  return {
    partner,
    status: statusOf(flags.disabled !== undefined, active, off.length),
    keys: { active, inactive: off.length },
    ...defined({
      lastUsedAt: used.toSorted((one, other) => other.getTime() - one.getTime())[0],
      disabled: flags.disabled,
      hold: flags.hold,
    }),
    inactiveBy: [...new Map(sources.map((one) => [secretName(one), one])).values()],
  };
}

function statusOf(disabled: boolean, active: number, inactive: number): PartnerView['status'] {
  if (disabled) return 'disabled';
  if (active > 0) return 'active';
  return inactive > 0 ? 'inactive' : 'no keys';
}

/** The command that undoes a Secret's status. */
export function reactivation(secret: KeySource): string {
  const { namespace, name } = secret;
  return `Secret ${secretName(secret)} makes keys inactive; to undo that: kubectl -n ${namespace} annotate secret ${name} ${STATUS_ANNOTATION}=active --overwrite`;
}

export async function keysView(
  { keys }: Pick<Reads, 'keys'>,
  partner: string | undefined,
): Promise<KeyView[]> {
  const [all, flagged] = await Promise.all([keys.list(partner), keys.disabled()]);
  const disabled = new Set(flagged.map(({ _id }) => _id));
  return all.map((key) => ({
    key: keyIdOf(key.hash),
    partner: key.partnerId,
    status: keyStatus(key, disabled.has(key.partnerId)),
    secret: secretName(key.source),
    ...defined({
      inactiveBy: key.inactiveBy && secretName(key.inactiveBy),
      lastUsedAt: key.lastUsedAt,
      test: key.terms.test,
      notAfter: key.terms.notAfter,
      cidrs: key.terms.cidrs,
      revokedAt: key.revokedAt,
    }),
    changedAt: key.updatedAt,
  }));
}

function keyStatus({ revokedAt, status }: PartnerKey, disabled: boolean): KeyView['status'] {
  if (revokedAt !== undefined) return 'revoked';
  return disabled ? 'disabled' : status;
}

export interface HoldView {
  readonly partner: string;
  readonly at: Date;
  readonly by: string;
  /** Counted up to `OPEN_COUNTED`. */
  readonly waiting: number;
}

export async function holdsView({
  holds,
  submissions,
}: Pick<Reads, 'holds' | 'submissions'>): Promise<HoldView[]> {
  return Promise.all(
    (await holds.list()).map(async ({ _id: partner, at, by }) => ({
      partner,
      at,
      by,
      waiting: await submissions.countOpen(partner, OPEN_COUNTED),
    })),
  );
}
