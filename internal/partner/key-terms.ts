/** Reads a partner Secret's annotations: mode, bounds, end and networks of its keys. */
import { z } from 'zod';
import { addressTest, type AddressTest, isNetwork } from '../platform/http/networks.ts';
import { DAY_MS } from '../platform/process/clock.ts';

/** A key and all that is submitted with it are live or tests. */
export interface Mode {
  readonly test?: true | undefined;
}

/** A partner's tests are a separate owner. No partner id has a space. */
export const ownerName = (partnerId: string, { test }: Mode): string =>
  test ? `${partnerId} test` : partnerId;

export const isTestOwner = (owner: string): boolean => owner.endsWith(' test');

/** Tests' records and accounts expire after this time, in any state. */
export const TESTS_KEPT_SECONDS = (7 * DAY_MS) / 1_000;

export interface KeyTerms {
  /** Submissions with these keys are tests. */
  readonly test?: true;
  /** The key is that of the controller's probe. No annotation says so. */
  readonly probe?: true;
  readonly maxPerMinute?: number;
  /** Counts what this bound would turn away; turns nothing away. */
  readonly dryRunPerMinute?: number;
  readonly notAfter?: Date;
  /** Networks such as `192.0.2.0/24`, or single addresses. */
  readonly cidrs?: readonly string[];
  /** Each 202 has a receipt, whether it was asked for or not. */
  readonly receipts?: true;
}

export const MAX_BOUND = 1_000_000;
/** Those that open no door: what cannot be read there ends no key. */
const MILD = {
  'partner-ingest.io/max-per-minute': 'maxPerMinute',
  'partner-ingest.io/max-per-minute-dry-run': 'dryRunPerMinute',
  'partner-ingest.io/receipts': 'receipts',
} as const;
const bound = z
  .string()
  .refine((value) => /^[1-9]\d{0,6}$/.test(value) && Number(value) <= MAX_BOUND, {
    error: `must be a whole number from 1 to ${MAX_BOUND}`,
  })
  .transform(Number);

const MAX_CIDRS = 100;

/** The kind `Partner`, and how many Secrets one may list. */
export const PARTNER_API = { group: 'partner-ingest.io', version: 'v1alpha1' } as const;
export const KEYS_MOST = 100;

export const notAfterRule = z.iso
  .datetime({
    offset: true,
    error: 'must be a time of RFC 3339 such as 2027-01-31T12:00:00Z',
  })
  .transform((time) => new Date(time));
export const cidrsRule = z
  .array(z.string())
  .refine((cidrs) => cidrs.length > 0 && cidrs.length <= MAX_CIDRS && cidrs.every(isNetwork), {
    error: `must be 1 to ${MAX_CIDRS} addresses or networks such as 192.0.2.0/24, separated by commas`,
  });

export const modeRule = z.enum(['live', 'test'], { error: 'must be "live" or "test"' });
export const formatRule = z.enum(['pik', 'older'], { error: 'must be "pik" or "older"' });

export const receiptsRule = z.enum(['on-request', 'always'], {
  error: 'must be "on-request" or "always"',
});

export const MODE_ANNOTATION = 'partner-ingest.io/mode';

/** What each annotation adds to the terms. */
const annotations: Readonly<Record<string, z.ZodType<KeyTerms>>> = {
  [MODE_ANNOTATION]: modeRule.transform((mode) => (mode === 'test' ? { test: true } : {})),
  'partner-ingest.io/max-per-minute': bound.transform((maxPerMinute) => ({ maxPerMinute })),
  'partner-ingest.io/max-per-minute-dry-run': bound.transform((dryRunPerMinute) => ({
    dryRunPerMinute,
  })),
  'partner-ingest.io/not-after': notAfterRule.transform((notAfter) => ({ notAfter })),
  'partner-ingest.io/cidrs': z
    .string()
    .transform((value) => value.split(',').map((cidr) => cidr.trim()))
    .pipe(cidrsRule)
    .transform((cidrs) => ({ cidrs })),
  'partner-ingest.io/receipts': receiptsRule.transform((when) =>
    when === 'always' ? { receipts: true } : {},
  ),
};

export const FORMAT_ANNOTATION = 'partner-ingest.io/key-format';

export interface ReadTerms {
  readonly terms: KeyTerms;
  /** Allows keys that another system issued. */
  readonly olderKeys?: boolean;
  /** Annotations that break a rule; the Secret's keys are then not used. */
  readonly faults: readonly string[];
  /** Why a term that opens no door cannot be read. */
  readonly mildFaults?: readonly MildFault[];
}

export interface MildFault {
  readonly of: (typeof MILD)[keyof typeof MILD];
  readonly fault: string;
}

export function readTerms(given: Readonly<Record<string, string>>): ReadTerms {
  const faults: string[] = [];
  const mildFaults: MildFault[] = [];
  const read = <T>(name: string, rule: z.ZodType<T>): T | undefined => {
    const value = given[name];
    if (value === undefined) return undefined;
    const { data, error } = rule.safeParse(value.trim());
    if (error === undefined) return data;
    const fault = `annotation ${name} ${error.issues[0]?.message}`;
    if (name in MILD) mildFaults.push({ of: MILD[name as keyof typeof MILD], fault });
    else faults.push(`${fault}; the keys of this Secret are not used`);
    return undefined;
  };
  const terms = Object.entries(annotations).map(([name, rule]) => read(name, rule));
  const olderKeys = read(FORMAT_ANNOTATION, formatRule) === 'older';
  return {
    terms: Object.assign({}, ...terms) as KeyTerms,
    olderKeys,
    faults,
    ...(mildFaults.length > 0 ? { mildFaults } : {}),
  };
}

/** The bound of each owner, by its name. */
export function boundsOf(
  keys: readonly { readonly partnerId: string; readonly terms: KeyTerms }[],
) {
  const groups = [...Map.groupBy(keys, ({ partnerId, terms }) => ownerName(partnerId, terms))];
  return new Map(
    groups.map(([owner, theirs]) => [owner, smallestBounds(theirs.map(({ terms }) => terms))]),
  );
}

export type PartnerBounds = Pick<KeyTerms, 'maxPerMinute' | 'dryRunPerMinute'>;

export function smallestBounds(all: readonly KeyTerms[]): PartnerBounds {
  const smallest = (name: keyof PartnerBounds): PartnerBounds => {
    const given = all.flatMap((terms) => terms[name] ?? []);
    return given.length === 0 ? {} : { [name]: Math.min(...given) };
  };
  return { ...smallest('maxPerMinute'), ...smallest('dryRunPerMinute') };
}

export function addressCheck({ cidrs }: KeyTerms): AddressTest {
  return cidrs === undefined ? () => true : addressTest(cidrs);
}

const WARNED_MS = 14 * DAY_MS;
const WARNED_AFTER_MS = DAY_MS;

/** Its partner is told of its end. */
export const endsSoon = ({ notAfter }: KeyTerms, now: Date): boolean =>
  notAfter !== undefined && notAfter.getTime() - now.getTime() <= WARNED_MS;

/** Partners whose last active live key ends within two weeks, or ended within a day. */
export function partnersEnding(
  keys: Iterable<{ readonly partnerId: string; readonly status: string; readonly terms: KeyTerms }>,
  now: Date,
): readonly string[] {
  const live = [...keys].filter(({ status, terms }) => status === 'active' && !terms.test);
  const byPartner = [...Map.groupBy(live, ({ partnerId }) => partnerId)];
  return byPartner.flatMap(([partnerId, theirs]) => {
    const lastEnd = Math.max(...theirs.map(({ terms }) => terms.notAfter?.getTime() ?? Infinity));
    const inMs = lastEnd - now.getTime();
    return inMs >= -WARNED_AFTER_MS && inMs <= WARNED_MS ? [partnerId] : [];
  });
}
