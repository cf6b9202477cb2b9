/** Refuses what a newer version stored. */

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
