/** What `/livez` and `/readyz` ask the parts of a process. */

/** Returns the faults; empty if all is well. */
export type Probe = () => readonly string[] | Promise<readonly string[]>;

export async function allOf(checks: readonly Probe[]): Promise<readonly string[]> {
  return [...new Set((await Promise.all(checks.map(async (check) => check()))).flat())];
}
