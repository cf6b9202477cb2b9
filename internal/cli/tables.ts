/** Tables with a header, for people. */
import { styleText } from 'node:util';
import { printable, table } from '../platform/terminal.ts';
import { fromNow, utcSeconds } from '../view/times.ts';

export function headed(header: readonly string[], rows: readonly (readonly string[])[]): string {
  return table(
    [header.map((name) => styleText('dim', name)), ...rows.map((row) => row.map(printable))],
    '',
  );
}

/** When, and how long ago. */
export function lastUseCells(usedAt: Date | undefined, now: Date): readonly [string, string] {
  return usedAt === undefined ? ['never', ''] : [utcSeconds(usedAt), fromNow(usedAt, now)];
}
