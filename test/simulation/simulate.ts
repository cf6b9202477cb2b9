/**
 * Plays many histories and tells of them; a failing one is cut down to the smallest that fails,
 * with how to see it again.
 */
import { parseArgs } from 'node:util';
import * as fc from 'fast-check';
import { play, type Told } from './history.ts';
import { plans } from './plan.ts';
import type { Windows } from './rules.ts';
import type { Parts } from './world.ts';

export interface Simulated {
  readonly seed: number;
  readonly histories: number;
  readonly mails: number;
  /** How long all of it would have taken. */
  readonly simulatedDays: number;
  readonly states: Readonly<Record<string, number>>;
  readonly windows: Windows;
  /** What went wrong, in words for a person; undefined when nothing did. */
  readonly failure: string | undefined;
}

/**
 * `at` is the number of a history in the run of this seed, as a failure prints it: only that one is
 * played. `hasty` stops at the first failure as it is, without looking for a smaller one.
 */
export async function simulate(options: {
  readonly seed: number;
  readonly histories: number;
  readonly at?: string | undefined;
  readonly parts?: Partial<Parts>;
  readonly hasty: boolean;
}): Promise<Simulated> {
  const { seed, at, parts = {}, hasty } = options;
  const told: Told[] = [];
  const property = fc.asyncProperty(plans, async (plan) => void told.push(await play(plan, parts)));
  const details = await fc.check(property, {
    seed,
    numRuns: at === undefined ? options.histories : 1,
    endOnFailure: hasty,
    ...(at === undefined ? {} : { path: at }),
  });
  // What follows the first number is the way to the smallest failing history, which is found again.
  const failedAt = details.counterexamplePath?.split(':')[0];
  const error = details.errorInstance;
  const failure = [
    error instanceof Error ? (error.stack ?? error.message) : '?',
    `the history: ${JSON.stringify(details.counterexample)}`,
    `to see it again: make simulate SEED=${seed} AT=${failedAt}`,
  ].join('\n');
  const sum = (of: (one: Told) => Readonly<Record<string, number>>): Record<string, number> => {
    const sums: Record<string, number> = {};
    for (const one of told)
      for (const [name, count] of Object.entries(of(one))) sums[name] = (sums[name] ?? 0) + count;
    return sums;
  };
  const { mails = 0, days = 0 } = sum((one) => ({
    mails: one.mails,
    days: one.simulatedMs / 86_400_000,
  }));
  return {
    seed,
    histories: told.length,
    mails,
    simulatedDays: Math.round(days),
    states: sum(({ states }) => states),
    windows: sum(({ windows }) => ({ ...windows })) as unknown as Windows,
    failure: details.failed ? failure : undefined,
  };
}

if (import.meta.main) {
  const text = { type: 'string', default: '' } as const;
  const { values } = parseArgs({
    options: {
      seed: text,
      histories: text,
      at: text,
      hasty: { type: 'boolean', default: false },
      queue: text,
    },
  });
  const startedAt = performance.now();
  const result = await simulate({
    seed: Number(values.seed || Date.now() % 2 ** 31),
    histories: Number(values.histories || 10_000),
    at: values.at || undefined,
    parts: { hasQueue: values.queue !== 'off' },
    hasty: values.hasty,
  });
  const { failure, ...figures } = result;
  const seconds = Math.round((performance.now() - startedAt) / 1_000);
  console.log(JSON.stringify({ ...figures, seconds }, undefined, 2));
  if (failure !== undefined) {
    console.error(failure);
    process.exitCode = 1;
  }
}
