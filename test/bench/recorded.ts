/** Writes the table into docs/sizing.md, and holds the page's plans against it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format, resolveConfig } from 'prettier';
import { ROOT } from '../../tools/root.ts';
import { CPU_OF_ACCEPT, CPU_OF_APPLICATION, headOf, type Row } from './rows.ts';

const PAGE = join(ROOT, 'docs/sizing.md');
const BLOCK = /(<!-- make bench RECORD=1 -->\n)[^]*?(<!-- end -->)/;
const PLAN = /([\d,]+) accepts a second for an ingest pod and ([\d,]+)\s+applications for a/;
/** Of its core, for a process that works as planned. */
const MOST_SHARE = 0.75;

/** Throws if a pod could not do what the page plans for it. */
export async function record(about: string, rows: readonly Row[]): Promise<void> {
  const names = headOf(rows);
  const lines = [
    ['', ...names],
    ['---', ...names.map(() => '--:')],
    ...rows.map(([figure, cells]) => [figure, ...names.map((name) => cells[name] ?? '')]),
  ].map((cells) => `| ${cells.join(' | ')} |`);
  const page = readFileSync(PAGE, 'utf8');
  const text = page.replace(
    BLOCK,
    (_, begin: string, end: string) => `${begin}\n${about}\n\n${lines.join('\n')}\n\n${end}`,
  );
  const options = { ...(await resolveConfig(PAGE)), parser: 'markdown' };
  writeFileSync(PAGE, await format(text, options));
  const [, ...plan] = PLAN.exec(text) ?? [];
  for (const [index, figure] of [CPU_OF_ACCEPT, CPU_OF_APPLICATION].entries()) {
    const us = numberIn(rows.find(([name]) => name.startsWith(figure))?.[1]['ours']);
    const share = (us * numberIn(plan[index])) / 1e6;
    if (!(share <= MOST_SHARE))
      throw new Error(
        `${plan[index]} a second take ${Math.round(100 * share)} % of a core: ${figure}`,
      );
  }
}

const numberIn = (text = ''): number => Number(text.replaceAll(/[^\d.]/g, '') || NaN);
