/** What annotations of a partner's Secret say beside its status: the bounds of the partner. Pure. */

/** What a partner may send; without a bound only the limit by address counts. */
export interface PartnerBounds {
  /** Requests to submit in a minute. */
  readonly maxPerMinute?: number;
  /** Bodies in 24 hours, all together, in megabytes of 1,000,000 bytes. */
  readonly maxMegabytesPerDay?: number;
}

/** What a key's Secret, and its partner's others, say about it. */
export type KeyTerms = PartnerBounds;

interface Rule {
  readonly text: string;
  /** What the annotation asks for; undefined where it breaks the rule. */
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

const rules: Readonly<Record<string, Rule>> = {
  'partner-ingest.io/max-per-minute': bound('maxPerMinute'),
  'partner-ingest.io/max-megabytes-per-day': bound('maxMegabytesPerDay'),
};

/** Of a Secret's annotations those that are read here; the others can be large. */
export function termAnnotations(annotations: Readonly<Record<string, string>> = {}): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(annotations).filter(([name]) => Object.hasOwn(rules, name)));
}

/** The terms that annotations ask for, and a sentence for each annotation that breaks its rule. */
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
    if (asked === undefined) faults.push(`annotation ${name} ${text}; the keys of this Secret are not used`);
    else terms = { ...terms, ...asked };
  }
  return { terms, faults };
}

/** The bounds of a partner with several Secrets: the smaller counts. */
export function smallerBounds(one: PartnerBounds, other: PartnerBounds): PartnerBounds {
  const smaller = (field: keyof PartnerBounds): PartnerBounds => {
    const least = Math.min(one[field] ?? Infinity, other[field] ?? Infinity);
    return least === Infinity ? {} : { [field]: least };
  };
  return { ...smaller('maxPerMinute'), ...smaller('maxMegabytesPerDay') };
}
