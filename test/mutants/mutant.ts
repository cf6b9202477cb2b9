/** One-line changes that break a promise, each with the test that must turn red. `make mutants` tries them. */
import { createHash } from 'node:crypto';

export interface Mutant {
  readonly file: string;
  /** Text that occurs exactly once in the file. */
  readonly find: string;
  readonly replace: string;
  /** Test files of which at least one must turn red. */
  readonly tests: readonly string[];
  /** What breaks. */
  readonly why: string;
}

/** What is found, what stands in its place, and what that breaks. */
type Change = readonly [find: string, replace: string, why: string];

/** Mutants of one file that the same tests must notice. */
export function mutantsOf(file: string, tests: string | readonly string[], changes: readonly Change[]): Mutant[] {
  const named = typeof tests === 'string' ? [tests] : tests;
  return changes.map(([find, replace, why]) => ({ file, find, replace, tests: named, why }));
}

/** The room of a file as ROOM names it: `submission` of internal/submission, `cmd`, `chart` or `alerts`. */
export function roomOf({ file }: Mutant): string {
  const [top = '', room = ''] = file.split('/');
  if (top === 'internal') return room;
  if (top !== 'charts') return top;
  return file.endsWith('/alerts.yaml') ? 'alerts' : 'chart';
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
