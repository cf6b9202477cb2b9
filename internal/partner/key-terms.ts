/** Reads a partner Secret's annotations: mode, bounds, end and networks of its keys. */
import { z } from 'zod';
import { DAY_MS, later } from '../platform/clock.ts';
import { addressTest, isNetwork, type AddressTest } from '../platform/networks.ts';

export interface PartnerBounds {
  readonly maxPerMinute?: number;
  /** In 24 hours; a megabyte has 1,000,000 bytes. */
  readonly maxMegabytesPerDay?: number;
}

export interface KeyTerms extends PartnerBounds {
  /** What its keys submit is a test. */
  readonly test?: true;
  readonly notAfter?: Date;
  /** Networks such as `192.0.2.0/24`, or single addresses. */
  readonly cidrs?: readonly string[];
}

interface Rule {
  readonly text: string;
  readonly read: (value: string) => KeyTerms | undefined;
}

const MAX_BOUND = 1_000_000;
const bound = (field: keyof PartnerBounds): Rule => ({
  text: `must be a whole number from 1 to ${MAX_BOUND}`,
  read: (value) => {
    const number = /^[1-9]\d{0,6}$/.test(value) ? Number(value) : Infinity;
    return number <= MAX_BOUND ? { [field]: number } : undefined;
  },
});

const MAX_CIDRS = 100;
const dateTime = z.iso.datetime({ offset: true });

export const MODE_ANNOTATION = 'partner-ingest.io/mode';

const rules: Readonly<Record<string, Rule>> = {
  [MODE_ANNOTATION]: {
    text: 'must be "live" or "test"',
    read: (value) => (value === 'test' ? { test: true } : value === 'live' ? {} : undefined),
  },
  'partner-ingest.io/max-per-minute': bound('maxPerMinute'),
  'partner-ingest.io/max-megabytes-per-day': bound('maxMegabytesPerDay'),
  'partner-ingest.io/not-after': {
    text: 'must be a time of RFC 3339 such as 2027-01-31T12:00:00Z',
    read: (value) =>
      dateTime.safeParse(value).success ? { notAfter: new Date(value) } : undefined,
  },
  'partner-ingest.io/cidrs': {
    text: `must be 1 to ${MAX_CIDRS} addresses or networks such as 192.0.2.0/24, separated by commas`,
    read: (value) => {
      const cidrs = value.split(',').map((cidr) => cidr.trim());
      return cidrs.length <= MAX_CIDRS && cidrs.every(isNetwork) ? { cidrs } : undefined;
    },
  },
};

/** Other annotations can be large, so they are dropped. */
export function termAnnotations(
  annotations: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(annotations).filter(([name]) => Object.hasOwn(rules, name)),
  );
}

export function readTerms(annotations: Readonly<Record<string, string>>): {
  readonly terms: KeyTerms;
  readonly faults: readonly string[];
} {
  const faults: string[] = [];
  let terms: KeyTerms = {};
  for (const [name, { text, read }] of Object.entries(rules)) {
    const value = annotations[name];
    if (value === undefined) continue;
    const asked = read(value.trim());
    if (asked === undefined)
      faults.push(`annotation ${name} ${text}; the keys of this Secret are not used`);
    else terms = { ...terms, ...asked };
  }
  return { terms, faults };
}

export function smallerBounds(one: PartnerBounds, other: PartnerBounds): PartnerBounds {
  const smaller = (field: keyof PartnerBounds): PartnerBounds => {
    const least = Math.min(one[field] ?? Infinity, other[field] ?? Infinity);
    return least === Infinity ? {} : { [field]: least };
  };
  return { ...smaller('maxPerMinute'), ...smaller('maxMegabytesPerDay') };
}

export function addressCheck({ cidrs }: KeyTerms): AddressTest {
  return cidrs === undefined ? () => true : addressTest(cidrs);
}

const WARNED_MS = 7 * DAY_MS;
const WARNED_AFTER_MS = DAY_MS;

/** Partners whose active live keys end soon or have all ended within a day. */
export function partnersEnding(
  keys: Iterable<{ readonly partnerId: string; readonly status: string; readonly terms: KeyTerms }>,
  now: Date,
): readonly string[] {
  const lastEnds = new Map<string, number>();
  for (const { partnerId, status, terms } of keys) {
    if (status !== 'active' || terms.test) continue;
    const endsAt = terms.notAfter?.getTime() ?? Infinity;
    lastEnds.set(partnerId, Math.max(lastEnds.get(partnerId) ?? 0, endsAt));
  }
  const from = later(now, -WARNED_AFTER_MS).getTime();
  const to = later(now, WARNED_MS).getTime();
  return [...lastEnds]
    .filter(([, endsAt]) => endsAt >= from && endsAt <= to)
    .map(([partnerId]) => partnerId);
}
