/** The mutants of mutants.yaml, which `make mutants` tries. */
import { parse } from 'yaml';
import { read } from '../support/pages.ts';

export interface Change {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

export interface Mutant extends Change {
  /** The promise as docs/proof.md words it. */
  readonly promise: string;
  readonly test: string;
  readonly why: string;
}

interface Group {
  readonly file: string;
  /** Without it, the unit test beside the file. */
  readonly test?: string;
  readonly changes: readonly Pick<Mutant, 'find' | 'replace' | 'why'>[];
}

const groups = parse(read('test/mutants/mutants.yaml')) as Readonly<Record<string, Group[]>>;

export const mutants: readonly Mutant[] = Object.entries(groups).flatMap(([promise, files]) =>
  files.flatMap(({ file, test = file.replace(/\.ts$/, '.test.ts'), changes }) =>
    changes.map((change) => ({ promise, file, test, ...change })),
  ),
);

/** The text with the change; undefined unless the original stands there once. */
export function mutated(text: string, { find, replace }: Change): string | undefined {
  const parts = text.split(find);
  return parts.length === 2 ? parts.join(replace) : undefined;
}
