/** Figures of a run: each test notes its own in a file, and the closing table is made of them. */
import { appendFileSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { FOLDER } from './cluster.ts';

const FILE = join(FOLDER, 'measured.jsonl');

export interface Measured {
  readonly what: string;
  readonly value: string;
}

/** One line of the closing table. */
export function note(what: string, value: string): void {
  appendFileSync(FILE, `${JSON.stringify({ what, value })}\n`);
}

export function forgetMeasured(): void {
  mkdirSync(FOLDER, { recursive: true });
  rmSync(FILE, { force: true });
}

export function measured(): Measured[] {
  try {
    const lines = readFileSync(FILE, 'utf8').split('\n');
    return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as Measured);
  } catch {
    return [];
  }
}

/** The value below which a share of `values` lies: 0.5 is the median. */
function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

/** `p50 180 ms, p99 420 ms, most 450 ms (50)`. */
export function spread(values: readonly number[]): string {
  const [half, most] = [quantile(values, 0.5), quantile(values, 0.99)].map((value) =>
    Math.round(value),
  );
  return `p50 ${half} ms, p99 ${most} ms, most ${Math.round(Math.max(...values))} ms (${values.length} times)`;
}
