/** A one-line change that breaks a promise, with the test that must turn red. */
import { createHash } from 'node:crypto';

export interface Mutant {
  /** As docs/proof.md names it. */
  readonly promise: string;
  readonly file: string;
  readonly test: string;
  /** Text that occurs exactly once in the file. */
  readonly find: string;
  readonly replace: string;
  /** What breaks. */
  readonly why: string;
}

type Row = readonly [file: string, test: string, find: string, replace: string, why: string];

export function mutantsOf(promise: string, rows: readonly Row[]): Mutant[] {
  return rows.map(([file, test, find, replace, why]) => ({
    promise,
    file,
    test: test === '' ? file.replace(/\.ts$/, '.test.ts') : test,
    find,
    replace,
    why,
  }));
}

/** `count` of them, always the same ones for the same `seed`. */
export function draw(mutants: readonly Mutant[], seed: string, count: number): Mutant[] {
  const rank = ({ file, find, replace }: Mutant): string =>
    createHash('sha256').update([seed, file, find, replace].join('\0')).digest('hex');
  return mutants.toSorted((one, other) => (rank(one) < rank(other) ? -1 : 1)).slice(0, count);
}

/** `text` with the mutant's change; undefined where what it looks for is not there exactly once. */
export function mutated(text: string, { find, replace }: Mutant): string | undefined {
  const parts = text.split(find);
  return parts.length === 2 ? parts.join(replace) : undefined;
}
