/** Plays many histories and reports the smallest that fails. */
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
  readonly simulatedDays: number;
  readonly states: Readonly<Record<string, number>>;
  readonly windows: Windows;
  /** The failure as text; undefined if there is none. */
  readonly failure: string | undefined;
}

/**
 * `at` plays only the history with this number. `hasty` stops at the first failure without reducing
 * it.
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
  // The path behind the number leads to the smallest failing history.
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
