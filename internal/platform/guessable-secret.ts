/** Recognizes secrets that can be guessed: placeholders and texts with little entropy. */

/** A random key is well above this; `aaaa…`, `abcd…` and `abab…` are below. */
const MIN_BITS = 40;
const PLACEHOLDER =
  /replace[-_ ]?(with|me)|change[-_ ]?me|your[-_ ]?(api[-_ ]?)?(key|secret)|example[-_ ]?(key|secret)/i;

export function isGuessable(secret: string): boolean {
  if (PLACEHOLDER.test(secret)) return true;
  const codes = Array.from(secret, (character) => character.codePointAt(0) ?? 0);
  const period = codes.slice(0, periodOf(codes));
  // Constant steps are a row of the alphabet or of digits.
  const steps = period.slice(1).map((code, index) => code - (period[index] ?? 0));
  return Math.min(bitsOf(period), bitsOf(steps)) < MIN_BITS;
}

function periodOf(codes: readonly number[]): number {
  for (let length = 1; length <= codes.length / 2; length += 1) {
    if (codes.every((code, index) => code === codes[index % length])) return length;
  }
  return codes.length;
}

function bitsOf(values: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts.values()].reduce(
    (bits, count) => bits + count * Math.log2(values.length / count),
    0,
  );
}
