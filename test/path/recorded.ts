/** The recorded path, by file, and in what a path is longer. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format } from 'prettier';
import { ROOT } from '../../tools/root.ts';
import { sumsOf, type MeasuredPath, type Sums } from './measure.ts';

const FILE = join(ROOT, 'test/path/recorded.json');
/** Functions that timers share with a request may count once more or less. */
const RESERVE: Sums = { files: 1, functions: 5, calls: 20 };

export interface Recorded extends Sums {
  readonly byFile: Readonly<Record<string, readonly [functions: number, calls: number]>>;
}

export function summaryOf({ ingest, processor }: MeasuredPath): Recorded {
  const all = [...ingest, ...processor];
  const byFile = [...Map.groupBy(all, ({ file }) => file)]
    .map(([file, calls]) => [file, sumsOf(calls)] as const)
    .map(([file, { functions, calls }]) => [file, [functions, calls]] as const)
    .toSorted(([one], [other]) => (one < other ? -1 : 1));
  return { ...sumsOf(all), byFile: Object.fromEntries(byFile) };
}

export const readRecorded = (): Recorded => JSON.parse(readFileSync(FILE, 'utf8')) as Recorded;

export async function record(path: MeasuredPath): Promise<void> {
  const text = JSON.stringify(summaryOf(path));
  writeFileSync(FILE, await format(text, { parser: 'json', printWidth: 100 }));
}

/** A line for each sum beyond its bound, then one for each file that grew; none if none did. */
export function longerThan(recorded: Recorded, path: MeasuredPath): readonly string[] {
  const now = summaryOf(path);
  const beyond = (['files', 'functions', 'calls'] as const)
    .map((sum) => ({ sum, most: recorded[sum] + RESERVE[sum] }))
    .filter(({ sum, most }) => now[sum] > most)
    .map(
      ({ sum, most }) =>
        `the path of a POST has ${now[sum]} ${sum}, at most ${most} (if meant: make path RECORD=1)`,
    );
  if (beyond.length === 0) return [];
  const grown = Object.entries(now.byFile).flatMap(([file, [functions, calls]]) => {
    const [before, callsBefore] = recorded.byFile[file] ?? [0, 0];
    if (functions <= before && calls <= callsBefore) return [];
    const was = `${before} functions, ${callsBefore} calls`;
    return [`${file}: ${functions} functions, ${calls} calls (recorded: ${was})`];
  });
  return [...beyond, ...grown];
}
