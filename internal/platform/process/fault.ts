/** What is wrong, for programs and for people, and what asks for it. */
export interface Fault<Code extends string = string> {
  readonly code: Code;
  /** The server, the part or the cause that the code is of. */
  readonly of?: string;
  /** A sentence for people: no program reads it. */
  readonly words: string;
}

/* What `/livez` and `/readyz` ask the parts of a process. */

/** Empty if all is well. */
export type Probe = () => readonly Fault[] | Promise<readonly Fault[]>;

/** Each sentence once. */
export async function allOf(checks: readonly Probe[]): Promise<readonly Fault[]> {
  const told = (await Promise.all(checks.map(async (check) => check()))).flat();
  return [...new Map(told.map((fault) => [fault.words, fault])).values()];
}

export const wordsOf = (faults: readonly Fault[]): string[] => faults.map(({ words }) => words);

/* Refuses what a newer version stored. */

/**
 * A newer version stored it in a form that this one may not guess. What is stored says in `schema`
 * which versions may read it; without it, it is of schema 1.
 */
export class NewerVersionError extends Error {
  override readonly name = 'NewerVersionError';

  constructor(what: string) {
    super(`a newer version stored ${what} in a form that this one does not know: upgrade it`);
  }
}

/** The condition of a query that finds what `refuseNewer` refuses. */
export const newerThan = (known: number) => ({ schema: { $gt: known } });

/** Throws `NewerVersionError`. */
export function refuseNewer(
  what: string,
  { schema = 1 }: { readonly schema?: number },
  known: number,
): void {
  if (schema > known) throw new NewerVersionError(what);
}
