/** What `/livez` and `/readyz` ask the parts of a process. */
import type { Fault } from './fault.ts';

/** Empty if all is well. */
export type Probe = () => readonly Fault[] | Promise<readonly Fault[]>;

/** Each sentence once. */
export async function allOf(checks: readonly Probe[]): Promise<readonly Fault[]> {
  const told = (await Promise.all(checks.map(async (check) => check()))).flat();
  return [...new Map(told.map((fault) => [fault.words, fault])).values()];
}

export const wordsOf = (faults: readonly Fault[]): string[] => faults.map(({ words }) => words);
