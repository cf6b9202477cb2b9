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
  readonly notAfter?: Date;
  /** Networks such as `192.0.2.0/24`, or single addresses. */
  readonly cidrs?: readonly string[];
}

const MAX_BOUND = 1_000_000;
const bound = z
  .string()
  .refine((value) => /^[1-9]\d{0,6}$/.test(value) && Number(value) <= MAX_BOUND, {
    error: `must be a whole number from 1 to ${MAX_BOUND}`,
  })
  .transform(Number);

const MAX_CIDRS = 100;

export const MODE_ANNOTATION = 'partner-ingest.io/mode';

/** What each annotation adds to the terms. */
const annotations: Readonly<Record<string, z.ZodType<KeyTerms>>> = {
  [MODE_ANNOTATION]: z
    .enum(['live', 'test'], { error: 'must be "live" or "test"' })
    .transform((mode) => (mode === 'test' ? { test: true } : {})),
  'partner-ingest.io/max-per-minute': bound.transform((maxPerMinute) => ({ maxPerMinute })),
  'partner-ingest.io/not-after': z.iso
    .datetime({
      offset: true,
      error: 'must be a time of RFC 3339 such as 2027-01-31T12:00:00Z',
    })
    .transform((time) => ({ notAfter: new Date(time) })),
  'partner-ingest.io/cidrs': z
    .string()
    .transform((value) => value.split(',').map((cidr) => cidr.trim()))
    .refine((cidrs) => cidrs.length <= MAX_CIDRS && cidrs.every(isNetwork), {
      error: `must be 1 to ${MAX_CIDRS} addresses or networks such as 192.0.2.0/24, separated by commas`,
    })
    .transform((cidrs) => ({ cidrs })),
};

export const FORMAT_ANNOTATION = 'partner-ingest.io/key-format';
const format = z.enum(['pik', 'older'], { error: 'must be "pik" or "older"' });

export interface ReadTerms {
  readonly terms: KeyTerms;
  /** Allows keys that another system issued. */
  readonly olderKeys?: boolean;
  /** Annotations that break a rule; the Secret's keys are then not used. */
  readonly faults: readonly string[];
}

export function readTerms(given: Readonly<Record<string, string>>): ReadTerms {
  const faults: string[] = [];
  const read = <T>(name: string, rule: z.ZodType<T>): T | undefined => {
    const value = given[name];
    if (value === undefined) return undefined;
    const { data, error } = rule.safeParse(value.trim());
    if (error !== undefined)
      faults.push(
        `annotation ${name} ${error.issues[0]?.message}; the keys of this Secret are not used`,
      );
    return data;
  };
  const terms = Object.entries(annotations).map(([name, rule]) => read(name, rule));
  const olderKeys = read(FORMAT_ANNOTATION, format) === 'older';
  return { terms: Object.assign({}, ...terms) as KeyTerms, olderKeys, faults };
}

export function smallestBound(all: readonly KeyTerms[]): Pick<KeyTerms, 'maxPerMinute'> {
  const given = all.flatMap(({ maxPerMinute }) => maxPerMinute ?? []);
  return given.length === 0 ? {} : { maxPerMinute: Math.min(...given) };
}

export function addressCheck({ cidrs }: KeyTerms): AddressTest {
  return cidrs === undefined ? () => true : addressTest(cidrs);
}

const WARNED_MS = 7 * DAY_MS;
const WARNED_AFTER_MS = DAY_MS;

/** Partners whose last active live key ends within a week, or ended within a day. */
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
