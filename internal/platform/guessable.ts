/**
 * Secrets that somebody could guess: placeholders of our documents, and texts with little in them.
 * Pure.
 */

/**
 * A random key of the shortest allowed length has well above this; `aaaa…`, `abcd…` and `abab…` are
 * below.
 */
const MIN_BITS = 40;
/** What stands in the documents and examples of this repository where a secret belongs. */
const PLACEHOLDER =
  /replace[-_ ]?(with|me)|change[-_ ]?me|your[-_ ]?(api[-_ ]?)?(key|secret)|example[-_ ]?(key|secret)/i;

export function isGuessable(secret: string): boolean {
  if (PLACEHOLDER.test(secret)) return true;
  const codes = Array.from(secret, (character) => character.codePointAt(0) ?? 0);
  const period = codes.slice(0, periodOf(codes));
  // Neighbours that always differ by the same are a row of the alphabet or of the digits.
  const steps = period.slice(1).map((code, index) => code - (period[index] ?? 0));
  return Math.min(bitsOf(period), bitsOf(steps)) < MIN_BITS;
}

/** The length of the text that repeats, or of all. */
function periodOf(codes: readonly number[]): number {
  for (let length = 1; length <= codes.length / 2; length += 1) {
    if (codes.every((code, index) => code === codes[index % length])) return length;
  }
  return codes.length;
}

/** Shannon's entropy of the values, for all of them together. */
function bitsOf(values: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts.values()].reduce(
    (bits, count) => bits + count * Math.log2(values.length / count),
    0,
  );
}
