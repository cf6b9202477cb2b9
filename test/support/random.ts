/** A seeded generator (mulberry32). */

export type Random = ReturnType<typeof newRandom>;

const TWO_TO_32 = 4_294_967_296;

export function newRandom(seed: number) {
  let state = seed >>> 0;
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / TWO_TO_32;
  };
  return {
    /** Returns a number of at least 0 and less than 1. */
    next,
    /** A whole number, at least 0 and less than `below`. */
    below: (below: number): number => Math.floor(next() * below),
    between: (from: number, to: number): number => from + next() * (to - from),
    chance: (probability: number): boolean => next() < probability,
    pick: <T>(items: readonly T[]): T => items[Math.floor(next() * items.length)]!,
    shuffled: <T>(items: readonly T[]): T[] =>
      items
        .map((item) => ({ item, at: next() }))
        .toSorted((one, other) => one.at - other.at)
        .map(({ item }) => item),
    /** One of the keys, as often as its weight says. */
    weighted<Key extends string>(weights: Readonly<Record<Key, number>>): Key {
      const entries = Object.entries(weights) as [Key, number][];
      let left = next() * entries.reduce((sum, [, weight]) => sum + weight, 0);
      for (const [key, weight] of entries) {
        left -= weight;
        if (left < 0) return key;
      }
      return entries.at(-1)?.[0] as Key;
    },
  };
}
