/** Reads `Partner` resources, which say in the place of annotations what a partner's keys may do. */
import { z } from 'zod';
import { defined } from '../platform/process/defined.ts';
import { KEYS_MAX, type StoredKey } from './key-document.ts';
import {
  byAge,
  isPartnerId,
  type KeySource,
  type PartnerSecret,
  type Problem,
  secretName,
  sourceOf,
} from './key-secret.ts';
import {
  cidrsRule,
  formatRule,
  type KeyTerms,
  MAX_BOUND,
  modeRule,
  notAfterRule,
  receiptsRule,
  PARTNER_API,
  KEYS_MOST,
  smallestBounds,
} from './key-terms.ts';

export interface PartnerResource extends KeySource {
  readonly kind: 'Partner';
  readonly createdAt: Date | undefined;
  readonly generation: number;
  readonly resourceVersion: string;
  readonly partnerId: string;
  readonly suspend: boolean;
  readonly limits: Readonly<Partial<Record<keyof typeof limits, number>>>;
  /** By the name of their Secret. */
  readonly keys: ReadonlyMap<string, ListedKey>;
  /** Why the spec cannot be used. */
  readonly fault?: string;
  /** As the API server has it; only the controller writes it. */
  readonly status: unknown;
}

interface ListedKey {
  readonly terms: KeyTerms;
  readonly olderKeys: boolean;
}

const metadataSchema = z.object({
  apiVersion: z.literal(`${PARTNER_API.group}/${PARTNER_API.version}`),
  metadata: z.object({
    name: z.string().min(1),
    namespace: z.string().min(1).default('directory'),
    uid: z.string().default(''),
    creationTimestamp: z.coerce.date().optional(),
    generation: z.number().default(0),
    resourceVersion: z.string().default(''),
  }),
  spec: z.unknown().optional(),
  status: z.unknown().optional(),
});

const limit = z.int().min(1).max(MAX_BOUND).optional();
const limits = {
  maxPerMinute: limit,
  dryRunPerMinute: limit,
  testMaxPerMinute: limit,
  testDryRunPerMinute: limit,
};
// A misspelt field must not leave a key open.
const specSchema = z.strictObject({
  partnerId: z.string().optional(),
  suspend: z.boolean().default(false),
  limits: z.strictObject(limits).default({}),
  keys: z
    .array(
      z.strictObject({
        secretName: z
          .string()
          .regex(/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/, 'must be the name of a Secret'),
        mode: modeRule.optional(),
        format: formatRule.optional(),
        receipts: receiptsRule.optional(),
        notAfter: notAfterRule.optional(),
        cidrs: cidrsRule.optional(),
      }),
    )
    .max(KEYS_MOST)
    .refine((keys) => new Set(keys.map((key) => key.secretName)).size === keys.length, {
      error: 'names a Secret twice',
    })
    .default([]),
});

/** Other operators may have a kind of this name. */
export const isPartner = ({
  apiVersion,
  kind,
}: {
  readonly apiVersion?: unknown;
  readonly kind?: unknown;
}): boolean => kind === 'Partner' && String(apiVersion).startsWith(`${PARTNER_API.group}/`);

/** Throws if it has no name or another version; a wrong spec is its `fault`. */
export function readPartner(object: unknown): PartnerResource {
  const { data: read } = metadataSchema.safeParse(object);
  if (read === undefined)
    throw new RangeError('a Partner has no name, or a version not known here');
  const { metadata, spec, status } = read;
  const { creationTimestamp: createdAt, ...named } = metadata;
  const { data, error } = specSchema.safeParse(spec);
  const partnerId = givenId(spec) ?? metadata.name;
  const [issue] = error?.issues ?? [];
  const fault =
    issue === undefined
      ? isPartnerId(partnerId)
        ? undefined
        : 'spec.partnerId, or without it the name, is no partner id'
      : `spec.${issue.path.join('.')}: ${issue.message}`;
  return {
    ...named,
    kind: 'Partner',
    createdAt,
    partnerId,
    suspend: data?.suspend ?? false,
    limits: defined(data?.limits ?? {}),
    keys: new Map(data?.keys.map((key) => [key.secretName, rulesOf(key)])),
    status,
    ...defined({ fault }),
  };
}

/** Also of a spec that cannot be used: its keys stay as they are. */
const givenId = (spec: unknown): string | undefined => {
  const { partnerId } = (spec ?? {}) as { readonly partnerId?: unknown };
  return typeof partnerId === 'string' ? partnerId : undefined;
};

function rulesOf(key: z.infer<typeof specSchema>['keys'][number]): ListedKey {
  const { mode, receipts, notAfter, cidrs } = key;
  const test = mode === 'test' ? { test: true as const } : {};
  const always = receipts === 'always' ? { receipts: true as const } : {};
  return {
    terms: { ...test, ...always, ...defined({ notAfter, cidrs }) },
    olderKeys: key.format === 'older',
  };
}

export interface Governed {
  /** With the terms that count. */
  readonly secrets: readonly PartnerSecret[];
  readonly problems: readonly Problem[];
  /** The `Partner` of each partner that has one. */
  readonly partners: ReadonlyMap<string, PartnerResource>;
  /** Partners that have Secrets with annotations that are void. */
  readonly voided: ReadonlySet<string>;
  /** Ids of partners that have a `Partner`, or had one and were not given back to annotations. */
  readonly followers: readonly string[];
}

/** Beyond it, those without a Secret are forgotten. */
const FOLLOWERS_MOST = 2 * KEYS_MAX;

/**
 * Gives each Secret the terms of its `Partner`. A Secret that its `Partner` does not list, or whose
 * `Partner` cannot be used or is gone, keeps the terms of its stored keys and gets no other key.
 * `unread` are Secrets that may exist; with `lacksPartners` a `Partner` that is gone may come back;
 * `followers` are those of the round before.
 */
export function governed(
  secrets: readonly PartnerSecret[],
  all: readonly PartnerResource[],
  stored: Iterable<StoredKey>,
  {
    unread = [],
    lacksPartners = false,
    followers: before = [],
  }: {
    readonly unread?: readonly PartnerSecret[];
    readonly lacksPartners?: boolean;
    readonly followers?: readonly string[];
  } = {},
): Governed {
  const problems: Problem[] = [];
  const partners = new Map<string, PartnerResource>();
  for (const partner of all.toSorted(byAge)) {
    const { partnerId, name, fault } = partner;
    const first = partners.get(partnerId);
    const report = (code: Problem['code'], message: string): void =>
      void problems.push({ source: partnerSource(partner), partnerId, code, message });
    if (first !== undefined)
      report('same_partner_twice', `Partner ${first.name} has this partnerId already and counts`);
    else partners.set(partnerId, partner);
    if (fault !== undefined)
      report('invalid_partner', `Partner ${name}: ${fault}; its keys stay as they are`);
  }
  problems.push(...missing([...partners.values()], [...secrets, ...unread]));
  const followers = new Set([...before, ...partners.keys()]);
  const keysOf = Map.groupBy(stored, ({ source }) => secretName(source));
  const voided = new Set<string>();
  const ruled = secrets.map((secret) => {
    const { partnerId } = secret;
    const report = (code: Problem['code'], message: string): void =>
      void problems.push({ source: sourceOf(secret), partnerId, code, message });
    const [key] = keysOf.get(secretName(secret)) ?? [];
    const partner = partners.get(partnerId);
    if (partner === undefined) {
      const isGivenBack = secret.status !== undefined && !lacksPartners;
      if (!followers.has(partnerId) || isGivenBack) return secret;
      report(
        'partner_gone',
        'its Partner is gone, and its keys stay as they are: apply it again, or go back to annotations (docs/operations.md)',
      );
      return asStored(secret, key);
    }
    if (secret.isAnnotated) voided.add(partnerId);
    const rules = partner.keys.get(secret.name);
    if (partner.fault !== undefined) return asStored(secret, key);
    if (rules === undefined)
      report(
        'secret_unlisted',
        `Partner ${partner.name} does not list this Secret in spec.keys: its stored keys stay as they are, others are not taken`,
      );
    return ruledBy(partner, rules === undefined ? asStored(secret, key) : { ...secret, ...rules });
  });
  const owners = Map.groupBy([...secrets, ...unread], ({ partnerId }) => partnerId);
  const isFollower = (id: string): boolean => {
    const theirs = owners.get(id) ?? [];
    if (theirs.length === 0) return followers.size <= FOLLOWERS_MOST;
    return lacksPartners || theirs.some(({ status }) => status === undefined);
  };
  const kept = [...followers].filter((id) => partners.has(id) || isFollower(id)).toSorted();
  return { secrets: ruled, problems, partners, voided, followers: kept };
}

/** Secrets that a `Partner` lists and that are not its. */
const missing = (
  partners: readonly PartnerResource[],
  secrets: readonly PartnerSecret[],
): readonly Problem[] => {
  const known = new Set(secrets.map(ownedName));
  return partners.flatMap((partner) => {
    const { namespace, partnerId } = partner;
    return [...partner.keys.keys()]
      .filter((name) => !known.has(ownedName({ namespace, name, partnerId })))
      .map((name) => ({
        source: partnerSource(partner),
        partnerId,
        code: 'secret_missing' as const,
        message: `there is no Secret ${name} with the label partner-ingest.io/partner: ${partnerId}`,
      }));
  });
};

const ownedName = (one: Pick<PartnerSecret, 'namespace' | 'name' | 'partnerId'>): string =>
  JSON.stringify([one.namespace, one.name, one.partnerId]);

/** Suspension and limits are the partner's, also for a Secret that it does not list. */
function ruledBy(partner: PartnerResource, secret: PartnerSecret): PartnerSecret {
  const { mildFaults: _, suspendedBy: by, ...rest } = secret;
  const { maxPerMinute: __, dryRunPerMinute: ___, ...terms } = secret.terms;
  const { limits: all, suspend } = partner;
  const bounds = terms.test
    ? { maxPerMinute: all.testMaxPerMinute, dryRunPerMinute: all.testDryRunPerMinute }
    : { maxPerMinute: all.maxPerMinute, dryRunPerMinute: all.dryRunPerMinute };
  // An unlisted Secret that annotations ruled: what they switched off or bounded stays so.
  const isOwn = secret.isKept === true && secret.followed !== true;
  const isOff = isOwn && secret.status === 'inactive' && by?.kind !== 'Partner';
  const suspendedBy = suspend ? partnerSource(partner) : isOff ? by : undefined;
  return {
    ...rest,
    terms: {
      ...terms,
      ...(isOwn ? smallestBounds([secret.terms, defined(bounds)]) : defined(bounds)),
    },
    faults: [],
    status: suspend || isOff ? 'inactive' : undefined,
    ...(isOwn ? {} : { followed: true as const }),
    ...defined({ suspendedBy }),
  };
}

function asStored(secret: PartnerSecret, stored: StoredKey | undefined): PartnerSecret {
  const { mildFaults: _, ...rest } = secret;
  // A Secret whose label names another partner than its stored keys brings none.
  const isMoved = stored !== undefined && stored.partnerId !== secret.partnerId;
  const key = isMoved ? undefined : stored;
  const { probe: __, ...terms } = key?.terms ?? {};
  const { inactiveBy } = key ?? {};
  return {
    ...rest,
    ...(isMoved ? { data: {} } : {}),
    terms,
    faults: [],
    olderKeys: true,
    status: inactiveBy === undefined ? undefined : 'inactive',
    ...defined({ suspendedBy: inactiveBy, followed: key?.followed }),
    isKept: true,
  };
}

export const partnerSource = ({ namespace, name, uid, kind }: PartnerResource): KeySource => ({
  namespace,
  name,
  uid,
  kind,
});
