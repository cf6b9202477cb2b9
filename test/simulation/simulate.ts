/** Plays many histories and reports the smallest that fails. */
import { parseArgs } from 'node:util';
import * as fc from 'fast-check';
import { play, type Told } from './history.ts';
import { plans } from './plan.ts';

const text = { type: 'string', default: '' } as const;
const { values: flags } = parseArgs({
  options: {
    seed: text,
    histories: text,
    /** Plays only the history with this number. */
    at: text,
    /** Stops at the first failure without reducing it. */
    hasty: { type: 'boolean', default: false },
    queue: text,
  },
});
const startedAt = performance.now();
const seed = Number(flags.seed || Date.now() % 2 ** 31);
const hasQueue = flags.queue !== 'off';
const told: Told[] = [];
const property = fc.asyncProperty(
  plans,
  async (plan) => void told.push(await play(plan, { hasQueue })),
);
const details = await fc.check(property, {
  seed,
  numRuns: flags.at === '' ? Number(flags.histories || 10_000) : 1,
  endOnFailure: flags.hasty,
  ...(flags.at === '' ? {} : { path: flags.at }),
});

function sum(of: (one: Told) => object): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const one of told)
    for (const [name, count] of Object.entries<number>(of(one) as Record<string, number>))
      sums[name] = (sums[name] ?? 0) + count;
  return sums;
}
const { mails = 0, days = 0 } = sum(({ mails: all, simulatedMs }) => ({
  mails: all,
  days: simulatedMs / 86_400_000,
}));
const figures = {
  seed,
  histories: told.length,
  mails,
  simulatedDays: Math.round(days),
  states: sum(({ states }) => states),
  windows: sum(({ windows }) => windows),
  seconds: Math.round((performance.now() - startedAt) / 1_000),
};
console.log(JSON.stringify(figures, undefined, 2));
if (details.failed) {
  const error = details.errorInstance;
  console.error(error instanceof Error ? (error.stack ?? error.message) : '?');
  console.error(`the history: ${JSON.stringify(details.counterexample)}`);
  // The path behind the number leads to the smallest failing history.
  const failedAt = details.counterexamplePath?.split(':')[0];
  console.error(`to see it again: make simulate SEED=${seed} AT=${failedAt}`);
  process.exitCode = 1;
}
