/** Reads the wanted keys from partner Secrets, or the reasons why a Secret cannot be used. */
import { defined } from '../platform/process/defined.ts';
import {
  apiKeyProblem,
  appearance,
  digestProblem,
  hashApiKey,
  hashOfDigest,
  hasOwnPrefix,
  isPublishedKey,
  isTestKey,
  KEY_MIN_LENGTH,
} from './api-key.ts';
import {
  FORMAT_ANNOTATION,
  type KeyTerms,
  type MildFault,
  ownerName,
  type PartnerBounds,
  type ReadTerms,
  smallestBounds,
} from './key-terms.ts';

export const PARTNER_LABEL = 'partner-ingest.io/partner';
export const STATUS_ANNOTATION = 'partner-ingest.io/status';

export interface KeySource {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** Absent for a Secret. */
  readonly kind?: 'Partner';
}

/** The values of `data` are in base64. */
export interface PartnerSecret extends KeySource, ReadTerms {
  readonly createdAt: Date | undefined;
  readonly partnerId: string;
  readonly status: string | undefined;
  readonly data: Readonly<Record<string, string>>;
  /** Whether it has annotations of ours. */
  readonly isAnnotated?: boolean;
  /** The `Partner` that makes its keys inactive. */
  readonly suspendedBy?: KeySource;
  /** Its terms are those of a `Partner`. */
  readonly followed?: true;
  /** Only keys count that are stored as keys of this Secret. */
  readonly isKept?: boolean;
}

/** As people know it; a `Partner` by its kind too. */
export const secretName = ({ namespace, name, kind }: KeySource): string =>
  kind === undefined ? `${namespace}/${name}` : `${namespace}/${kind}/${name}`;

export interface WantedKey {
  readonly hash: string;
  readonly partnerId: string;
  readonly status: 'active' | 'inactive';
  /** The Secret or `Partner` that makes it inactive. */
  readonly inactiveBy?: KeySource;
  /** The terms are those of a `Partner`. */
  readonly followed?: true;
  readonly terms: KeyTerms;
  readonly source: KeySource;
}

export const problemCodes = [
  'invalid_partner_id',
  'no_keys',
  'empty_key',
  'key_too_short',
  'key_too_long',
  'key_not_printable',
  'key_not_base64',
  'key_guessable',
  'not_a_key',
  'key_of_older_form',
  'key_published',
  'key_of_other_mode',
  'same_key_two_partners',
  'same_key_two_secrets',
  'unknown_status',
  'invalid_annotation',
  'invalid_limit',
  'invalid_partner',
  'same_partner_twice',
  'secret_missing',
  'secret_unlisted',
  'partner_gone',
  'key_revoked',
  'too_many_keys',
  'keys_ending',
  'keys_nearly_full',
  'keys_would_end',
  'unreadable_namespace',
  'unreadable_file',
] as const;
type ProblemCode = (typeof problemCodes)[number];

/** `message` never quotes a key. */
export interface Problem {
  readonly source: KeySource;
  /** The `Partner` whose Event it is, in the place of the Secret's. */
  readonly about?: KeySource;
  /** As the Secret's label says; absent if the problem is not one partner's. */
  readonly partnerId?: string;
  readonly code: ProblemCode;
  readonly message: string;
}

type ReportProblem = (code: ProblemCode, message: string) => void;

/** Kubernetes allows this as a label value. */
const PARTNER_ID = /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;

export const isPartnerId = (text: string): boolean => PARTNER_ID.test(text);

/**
 * Judges all Secrets together. One inactive Secret makes its partner's keys inactive, and the
 * partner's smallest bound counts; a Secret of test keys concerns test keys only. A key belongs to
 * the Secret that holds it now, else to the oldest, usable or not. A bad entry affects only itself,
 * a bad annotation only its Secret. A bad bound changes none: the last good one stays.
 */
export function wantedKeys(
  secrets: readonly PartnerSecret[],
  {
    allowPublished = false,
    probeHash,
    heldBy = () => undefined,
    lastBounds = new Map(),
  }: KeyRules = {},
): {
  readonly keys: ReadonlyMap<string, WantedKey>;
  readonly problems: readonly Problem[];
} {
  const problems: Problem[] = [];
  const oldestFirst = secrets.toSorted(byAge);
  const owners = ownersOf(oldestFirst, lastBounds);
  const rules = { allowPublished, heldBy };
  const claims = oldestFirst.flatMap((secret) => claimsOf(secret, owners, rules, problems));
  const isHeld = ({ key: { hash, source } }: KeyEntry): boolean => isHeldBy(heldBy(hash), source);
  const chosen = new Map<string, KeyEntry>();
  for (const claim of [...claims.filter(isHeld), ...claims]) {
    const first = chosen.get(claim.key.hash);
    if (first === undefined) chosen.set(claim.key.hash, claim);
    else if (first.key.source.uid !== claim.key.source.uid)
      problems.push(sameKey(claim, first.key));
  }
  const usable = [...chosen].filter(([, { isUsable }]) => isUsable);
  const keys = new Map(usable.map(([hash, { key }]) => [hash, key]));
  const probe = probeHash === undefined ? undefined : keys.get(probeHash);
  if (probe?.terms.test) keys.set(probe.hash, { ...probe, terms: { ...probe.terms, probe: true } });
  return { keys, problems };
}

const isHeldBy = (holder: KeySource | undefined, { namespace, name }: KeySource): boolean =>
  holder !== undefined && secretName(holder) === secretName({ namespace, name, uid: '' });

interface KeyRules {
  readonly allowPublished?: boolean;
  /** The test key with this hash is the probe's. */
  readonly probeHash?: string;
  /** The Secret that holds the key now. */
  readonly heldBy?: (hash: string) => KeySource | undefined;
  /** What counts now, by owner. */
  readonly lastBounds?: ReadonlyMap<string, PartnerBounds>;
}

interface KeyEntry {
  readonly key: WantedKey;
  /** Names the Secret's entry in messages. */
  readonly entry: string;
  /** Whether the Secret's keys are used. */
  readonly isUsable: boolean;
}

function sameKey({ entry, key: { source, partnerId } }: KeyEntry, owner: WantedKey): Problem {
  const [code, whose] =
    owner.partnerId === partnerId
      ? (['same_key_two_secrets', `the Secret ${owner.source.name}`] as const)
      : (['same_key_two_partners', 'another partner'] as const);
  const message = `${entry} is already a key of ${whose} and was ignored here`;
  return { source, partnerId, code, message };
}

/** What all Secrets of one owner say together. */
interface OwnerTerms {
  readonly inactiveBy: KeySource | undefined;
  readonly bound: PartnerBounds;
}

const ownerOf = ({ partnerId, terms }: PartnerSecret): string => ownerName(partnerId, terms);

const byTerm = ({ of }: MildFault): string => of;

function ownersOf(
  oldestFirst: readonly PartnerSecret[],
  lastBounds: ReadonlyMap<string, PartnerBounds>,
): ReadonlyMap<string, OwnerTerms> {
  const groups = [...Map.groupBy(oldestFirst, ownerOf)];
  return new Map(
    groups.map(([owner, theirs]) => {
      const off = theirs.find(({ status }) => status === 'inactive');
      const unread = new Set(theirs.flatMap(({ mildFaults }) => mildFaults ?? []).map(byTerm));
      const last = Object.entries(lastBounds.get(owner) ?? {}).filter(([of]) => unread.has(of));
      const bounds = [...theirs.map(({ terms }) => terms), Object.fromEntries(last)];
      const bound = smallestBounds(bounds);
      return [owner, { inactiveBy: off && (off.suspendedBy ?? sourceOf(off)), bound }];
    }),
  );
}

function claimsOf(
  secret: PartnerSecret,
  owners: ReadonlyMap<string, OwnerTerms>,
  { allowPublished, heldBy }: Required<Pick<KeyRules, 'allowPublished' | 'heldBy'>>,
  problems: Problem[],
): readonly KeyEntry[] {
  const { partnerId, status = 'active', data } = secret;
  const source = sourceOf(secret);
  const isStored = (hash: string): boolean => heldBy(hash) !== undefined;
  const report: ReportProblem = (code, message) =>
    void problems.push({ source, partnerId, code, message });
  const isUsable = checkSecret(secret, report);
  const owner = owners.get(ownerOf(secret));
  for (const { of, fault } of secret.mildFaults ?? []) {
    const last = of === 'receipts' ? undefined : owner?.bound[of];
    const none = of === 'receipts' ? 'they are given on request' : 'this partner has none';
    report('invalid_limit', `${fault}; until then ${last === undefined ? none : `${last} counts`}`);
  }
  const inactiveBy =
    status === 'active'
      ? (owners.get(partnerId)?.inactiveBy ?? owner?.inactiveBy)
      : (secret.suspendedBy ?? source);
  const terms = { ...secret.terms, ...owner?.bound };
  return Object.entries(data).flatMap(([name, value]) => {
    const entry = printable(name);
    const test = terms.test === true;
    const older = secret.olderKeys === true;
    const { hash, fault } = readEntry(value, { allowPublished, test, older, isStored });
    if (fault !== undefined && isUsable) report(fault.code, `${entry} ${fault.why}`);
    if (hash === undefined || (secret.isKept && !isHeldBy(heldBy(hash), secret))) return [];
    const key = {
      hash,
      partnerId,
      status: inactiveBy === undefined ? ('active' as const) : ('inactive' as const),
      ...defined({ inactiveBy, followed: secret.followed }),
      source,
      terms,
    };
    return [{ key, entry, isUsable }];
  });
}

/** False if the Secret's keys are not used. */
function checkSecret(
  { partnerId, status, faults, data }: PartnerSecret,
  report: ReportProblem,
): boolean {
  if (!isPartnerId(partnerId)) {
    const message = `label ${PARTNER_LABEL} must be 1 to 63 letters, digits, ".", "_" or "-"`;
    report('invalid_partner_id', message);
    return false;
  }
  if (status !== undefined && !['active', 'inactive'].includes(status)) {
    // Keys of a Secret that is not used are answered 401.
    const answer = faults.length === 0 ? '; the keys of this Secret are answered 403' : '';
    const message = `annotation ${STATUS_ANNOTATION} must be "active" or "inactive"${answer}`;
    report('unknown_status', message);
  }
  for (const fault of faults) report('invalid_annotation', fault);
  if (faults.length > 0) return false;
  if (Object.keys(data).length === 0) report('no_keys', 'the Secret has no data entries');
  return true;
}

const NO_PREFIX = `does not begin with pik_, and annotation ${FORMAT_ANNOTATION} does not allow it`;
const NOT_OURS = 'begins with pik_, but "partner-ingest keys new" did not make it';
const MADE_UP = `${NOT_OURS}: it is mistyped or made up, or annotation ${FORMAT_ANNOTATION} must allow it`;
const STAYS = `${NOT_OURS}: it stays active for now, and a later version ends it; give the partner a new key, or allow it by annotation ${FORMAT_ANNOTATION}: older`;

interface EntryRules {
  readonly allowPublished: boolean;
  readonly test: boolean;
  readonly older: boolean;
  /** Whether a Secret holds the key already. */
  readonly isStored: (hash: string) => boolean;
}

interface EntryFault {
  readonly code: ProblemCode;
  readonly why: string;
}

/** Returns the key's hash, or why the entry is no key. A digest does not show its key's mode. */
function readEntry(
  value: string,
  { allowPublished, test, older, isStored }: EntryRules,
): { readonly hash?: string; readonly fault?: EntryFault } {
  const why = 'is not usable as an API key';
  const text = decode(value);
  if (text === undefined) return { fault: { code: 'key_not_base64', why } };
  const digest = hashOfDigest(text);
  const hash = digest ?? hashApiKey(text);
  const problem = digest === undefined ? apiKeyProblem(text, { older }) : digestProblem(digest);
  // An upgrade must not end a key that an earlier version accepted.
  const stays =
    problem === 'not_a_key' &&
    hasOwnPrefix(text) &&
    apiKeyProblem(text, { older: true }) === undefined &&
    isStored(hash);
  if (problem !== undefined && !stays) {
    const unlike = problem === 'not_a_key' && (hasOwnPrefix(text) ? MADE_UP : NO_PREFIX);
    const looks = appearance(text) ?? (unlike || undefined);
    const fault = looks === undefined ? why : `is no API key: it ${looks}`;
    return { fault: { code: problem, why: fault } };
  }
  if (digest === undefined && isTestKey(text) !== test) {
    const other = test ? 'is no test key: it must begin with pik_test_' : 'is a test key';
    return { fault: { code: 'key_of_other_mode', why: other } };
  }
  if (!allowPublished && isPublishedKey(hash)) {
    const published = 'is the published key of the evaluation, which everybody has';
    return { fault: { code: 'key_published', why: published } };
  }
  return stays ? { hash, fault: { code: 'key_of_older_form', why: STAYS } } : { hash };
}

export const sourceOf = ({ namespace, name, uid }: PartnerSecret): KeySource => ({
  namespace,
  name,
  uid,
});

/** The older one first. */
export function byAge<One extends KeySource & Pick<PartnerSecret, 'createdAt'>>(
  one: One,
  other: One,
): number {
  const age = (one.createdAt?.getTime() ?? 0) - (other.createdAt?.getTime() ?? 0);
  return age !== 0 ? age : secretName(one).localeCompare(secretName(other), 'en');
}

/** `kubectl create secret --from-file` keeps a final newline, which is not part of the key. */
function decode(value: string): string | undefined {
  if (!/^[A-Za-z0-9+/\s]*={0,2}\s*$/.test(value)) return undefined;
  return Buffer.from(value, 'base64')
    .toString('utf8')
    .replace(/\r?\n$/, '');
}

/** A long name may be the key itself, if name and value were swapped. */
function printable(name: string): string {
  return name.length < KEY_MIN_LENGTH ? `entry "${name}"` : 'an entry with a long name';
}
