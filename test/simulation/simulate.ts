/**
 * Plays many histories and tells of them; a failing one is cut down to the smallest that fails,
 * with how to see it again.
 */
import * as fc from 'fast-check';
import { play } from './history.ts';
import { plans } from './plan.ts';
import type { Windows } from './rules.ts';
import type { Parts } from './world.ts';

export interface Simulated {
  readonly seed: number;
  readonly histories: number;
  readonly requests: number;
  readonly mails: number;
  /** How long all of it would have taken. */
  readonly simulatedDays: number;
  readonly states: Readonly<Record<string, number>>;
  readonly windows: Windows;
  /** What went wrong, in words for a person; undefined when nothing did. */
  readonly failure: string | undefined;
}

export interface SimulationOptions {
  readonly seed: number;
  readonly histories: number;
  /**
   * The number of a history in the run of this seed, as a failure prints it; only that one is
   * played.
   */
  readonly at?: string | undefined;
  readonly parts?: Partial<Parts>;
  /** Stop at the first failure as it is, without looking for a smaller one. */
  readonly hasty?: boolean;
}

export async function simulate(options: SimulationOptions): Promise<Simulated> {
  const { seed, histories, at, parts = {}, hasty = false } = options;
  const told = { histories: 0, requests: 0, mails: 0, simulatedMs: 0 };
  const states: Record<string, number> = {};
  const windows: Windows = { ambiguous: 0, killed: 0, frozen: 0, cutOff: 0, processedAfter500: 0 };
  const property = fc.asyncProperty(plans, async (plan) => {
    const history = await play(plan, parts);
    told.histories += 1;
    told.requests += plan.submissions.length;
    told.mails += history.mails;
    told.simulatedMs += history.simulatedMs;
    for (const [state, count] of Object.entries(history.states))
      states[state] = (states[state] ?? 0) + count;
    for (const window of Object.keys(windows) as (keyof Windows)[])
      windows[window] += history.windows[window];
  });
  const details = await fc.check(property, {
    seed,
    numRuns: at === undefined ? histories : 1,
    endOnFailure: hasty,
    ...(at === undefined ? {} : { path: at }),
  });
  // What follows the first number is the way to the smallest failing history, which is found again.
  const failedAt = details.counterexamplePath?.split(':')[0];
  const { simulatedMs, ...counts } = told;
  const failure = details.failed
    ? [
        details.errorInstance instanceof Error
          ? (details.errorInstance.stack ?? details.errorInstance.message)
          : '?',
        `the history: ${JSON.stringify(details.counterexample)}`,
        `to see it again: make simulate SEED=${seed} AT=${failedAt}`,
      ].join('\n')
    : undefined;
  return {
    seed,
    ...counts,
    simulatedDays: Math.round(simulatedMs / 86_400_000),
    states,
    windows,
    failure,
  };
}

if (import.meta.main) {
  const option = (name: string): string | undefined => {
    const value = process.argv
      .find((argument) => argument.startsWith(`--${name}=`))
      ?.slice(name.length + 3);
    return value === '' ? undefined : value;
  };
  const startedAt = performance.now();
  const result = await simulate({
    seed: Number(option('seed') ?? Date.now() % 2 ** 31),
    histories: Number(option('histories') ?? 10_000),
    at: option('at'),
    hasty: option('hasty') !== undefined,
  });
  const { failure, ...figures } = result;
  console.log(
    JSON.stringify(
      { ...figures, seconds: Math.round(performance.now() - startedAt) / 1_000 },
      undefined,
      2,
    ),
  );
  if (failure !== undefined) {
    console.error(failure);
    process.exitCode = 1;
  }
}
