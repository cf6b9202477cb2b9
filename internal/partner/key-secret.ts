/** Reads the wanted keys from partner Secrets, or the reasons why a Secret cannot be used. */
import { defined } from '../platform/defined.ts';
import {
  KEY_MIN_LENGTH,
  apiKeyProblem,
  digestProblem,
  hashApiKey,
  hashOfDigest,
  isTestKey,
} from './api-key.ts';
import { readTerms, smallerBounds, type KeyTerms, type PartnerBounds } from './key-terms.ts';
import { ownerName } from './mode.ts';
import { isPublishedKey } from './published-secrets.ts';

export const PARTNER_LABEL = 'partner-ingest.io/partner';
export const STATUS_ANNOTATION = 'partner-ingest.io/status';

/** `data` is base64. */
export interface PartnerSecret {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly createdAt: Date | undefined;
  readonly partnerId: string;
  readonly status: string | undefined;
  /** Only those that `termAnnotations` keeps. */
  readonly annotations?: Readonly<Record<string, string>>;
  readonly data: Readonly<Record<string, string>>;
}

export interface KeySource {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

export function secretName({ namespace, name }: KeySource): string {
  return `${namespace}/${name}`;
}

export interface WantedKey {
  readonly hash: string;
  readonly partnerId: string;
  readonly status: 'active' | 'inactive';
  /** The Secret whose status makes it inactive. */
  readonly inactiveBy?: KeySource;
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
  'key_published',
  'key_of_other_mode',
  'same_key_two_partners',
  'same_key_two_secrets',
  'unknown_status',
  'invalid_annotation',
  'key_revoked',
  'too_many_keys',
  'keys_nearly_full',
  'all_keys_would_end',
  'unreadable_namespace',
  'unreadable_file',
] as const;
export type ProblemCode = (typeof problemCodes)[number];

/** Never quotes a key. */
export interface Problem {
  readonly source: KeySource;
  readonly code: ProblemCode;
  readonly message: string;
}

type Report = (code: ProblemCode, message: string) => void;

/** Kubernetes allows this as a label value. */
const PARTNER_ID = /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;

export function isPartnerId(text: string): boolean {
  return PARTNER_ID.test(text);
}

/**
 * Secrets are judged together. One inactive Secret switches off its partner, and the smallest bound
 * counts for it; a Secret of test keys concerns only the partner's test keys. A key belongs to one
 * Secret: the one that holds it now, else the oldest, even while that one is not usable. A bad entry
 * affects only itself, a bad annotation only its Secret.
 */
export function wantedKeys(
  secrets: readonly PartnerSecret[],
  { allowPublished = false, heldBy = () => undefined }: KeyRules = {},
): {
  readonly keys: ReadonlyMap<string, WantedKey>;
  readonly problems: readonly Problem[];
} {
  const problems: Problem[] = [];
  const claims = claimsOf(secrets, allowPublished, problems);
  const holds = ({ hash, source }: Claim): boolean => {
    const holder = heldBy(hash);
    return holder !== undefined && secretName(holder) === secretName(source);
  };
  const [held, fresh] = [claims.filter(holds), claims.filter((claim) => !holds(claim))];
  const owners = new Map<string, Claim>();
  for (const claim of [...held, ...fresh]) {
    const owner = owners.get(claim.hash);
    if (owner === undefined) owners.set(claim.hash, claim);
    else if (owner.source.uid !== claim.source.uid) problems.push(sameKey(claim, owner));
  }
  const keys = [...owners.values()].flatMap(({ key }) => key ?? []);
  return { keys: new Map(keys.map((key) => [key.hash, key])), problems };
}

interface KeyRules {
  readonly allowPublished?: boolean;
  /** The Secret that holds this key now. */
  readonly heldBy?: (hash: string) => KeySource | undefined;
}

interface Claim {
  readonly hash: string;
  readonly partnerId: string;
  readonly source: KeySource;
  /** The entry of the Secret, in words. */
  readonly entry: string;
  /** Undefined while the Secret is not usable. */
  readonly key: WantedKey | undefined;
}

function sameKey({ entry, source, partnerId }: Claim, owner: Claim): Problem {
  return owner.partnerId === partnerId
    ? {
        source,
        code: 'same_key_two_secrets',
        message: `${entry} is already a key of the Secret ${owner.source.name} and was ignored here`,
      }
    : {
        source,
        code: 'same_key_two_partners',
        message: `${entry} is already a key of another partner and was ignored here`,
      };
}

/** The oldest Secret comes first. */
function claimsOf(
  secrets: readonly PartnerSecret[],
  allowPublished: boolean,
  problems: Problem[],
): readonly Claim[] {
  const claims: Claim[] = [];
  const switchedOff = new Map(
    secrets
      .filter(({ status }) => status === 'inactive')
      .toSorted((one, other) => byAge(other, one))
      .map((secret) => [ownerOf(secret), sourceOf(secret)]),
  );
  const bounds = boundsByOwner(secrets);
  for (const secret of secrets.toSorted(byAge)) {
    const { partnerId } = secret;
    const source = sourceOf(secret);
    const report: Report = (code, message) => void problems.push({ source, code, message });
    const terms = termsOf(secret, report);
    const inactiveBy = isActive(secret.status)
      ? (switchedOff.get(partnerId) ?? switchedOff.get(ownerOf(secret)))
      : source;
    for (const [name, value] of Object.entries(secret.data)) {
      const entry = printable(name);
      const read = readEntry(value, { allowPublished, test: terms?.test === true });
      if (read.kind === 'problem') {
        if (terms !== undefined) report(read.code, `${entry} ${read.why}`);
        continue;
      }
      const { hash } = read;
      const key = terms && {
        hash,
        partnerId,
        status: inactiveBy === undefined ? ('active' as const) : ('inactive' as const),
        ...defined({ inactiveBy }),
        source,
        terms: { ...terms, ...bounds.get(ownerOf(secret)) },
      };
      claims.push({ hash, partnerId, source, entry, key });
    }
  }
  return claims;
}

/** Undefined if the Secret's keys are not used. */
function termsOf(
  { partnerId, status, annotations = {}, data }: PartnerSecret,
  report: Report,
): KeyTerms | undefined {
  if (!isPartnerId(partnerId)) {
    const message = `label ${PARTNER_LABEL} must be 1 to 63 letters, digits, ".", "_" or "-"`;
    report('invalid_partner_id', message);
    return undefined;
  }
  if (status !== undefined && !['active', 'inactive'].includes(status)) {
    const message = `annotation ${STATUS_ANNOTATION} must be "active" or "inactive"; the keys of this Secret are answered 403`;
    report('unknown_status', message);
  }
  const { terms, faults } = readTerms(annotations);
  for (const fault of faults) report('invalid_annotation', fault);
  if (faults.length > 0) return undefined;
  if (Object.keys(data).length === 0) report('no_keys', 'the Secret has no data entries');
  return terms;
}

type Entry =
  | { readonly kind: 'key'; readonly hash: string }
  | { readonly kind: 'problem'; readonly code: ProblemCode; readonly why: string };

/** The mode of a digest's key shows only when it is used. */
function readEntry(
  value: string,
  { allowPublished, test }: { readonly allowPublished: boolean; readonly test: boolean },
): Entry {
  const text = decode(value);
  const unusable = (code: ProblemCode): Entry => ({
    kind: 'problem',
    code,
    why: 'is not usable as an API key',
  });
  if (text === undefined) return unusable('key_not_base64');
  const digest = hashOfDigest(text);
  const problem = digest === undefined ? apiKeyProblem(text) : digestProblem(digest);
  if (problem !== undefined) return unusable(problem);
  if (digest === undefined && isTestKey(text) !== test) {
    const why = test ? 'is no test key: it must begin with pik_test_' : 'is a test key';
    return { kind: 'problem', code: 'key_of_other_mode', why };
  }
  const hash = digest ?? hashApiKey(text);
  if (allowPublished || !isPublishedKey(hash)) return { kind: 'key', hash };
  const why = 'is the published key of the evaluation, which everybody has';
  return { kind: 'problem', code: 'key_published', why };
}

const ownerOf = ({ partnerId, annotations = {} }: PartnerSecret): string =>
  ownerName(partnerId, readTerms(annotations).terms);

function boundsByOwner(secrets: readonly PartnerSecret[]): ReadonlyMap<string, PartnerBounds> {
  const bounds = new Map<string, PartnerBounds>();
  for (const secret of secrets) {
    const owner = ownerOf(secret);
    const { terms } = readTerms(secret.annotations ?? {});
    bounds.set(owner, smallerBounds(bounds.get(owner) ?? {}, terms));
  }
  return bounds;
}

function sourceOf({ namespace, name, uid }: PartnerSecret): KeySource {
  return { namespace, name, uid };
}

function isActive(status: string | undefined): boolean {
  return status === undefined || status === 'active';
}

function byAge(one: PartnerSecret, other: PartnerSecret): number {
  const age = (one.createdAt?.getTime() ?? 0) - (other.createdAt?.getTime() ?? 0);
  return age !== 0
    ? age
    : `${one.namespace}/${one.name}`.localeCompare(`${other.namespace}/${other.name}`, 'en');
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
