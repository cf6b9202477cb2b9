/** Pages of the project with their spans and blocks of code. */
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../tools/root.ts';

export const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
/** Matching paths, without installed and built files. */
export const found = (...patterns: string[]): string[] =>
  globSync(patterns, { cwd: ROOT, exclude: isForeign }).toSorted();
function isForeign(name: string): boolean {
  return /(^|\/)(node_modules|dist|\.run|\.git)(\/|$)/.test(name);
}

export interface Page {
  readonly path: string;
  readonly text: string;
  readonly spans: readonly string[];
  readonly lines: readonly string[];
}

function pageOf(path: string, text = read(path)): Page {
  const fence = /^[ \t]*```(\w*)[^\n]*\n([\s\S]*?)^[ \t]*```/gm;
  const lines = [...text.matchAll(fence)]
    .filter(([, language]) => language !== 'text' && language !== 'mermaid')
    .flatMap(([, , code = '']) => code.replaceAll(/\\\n\s*/g, ' ').split('\n'));
  const spans = [...text.replaceAll(fence, '').matchAll(/`([^`\n]+)`/g)].map(
    ([, span = '']) => span,
  );
  return { path, text, spans, lines };
}

export const pages = found(
  '*.md',
  'docs/**/*.md',
  'charts/**/*.md',
  'charts/**/NOTES.txt',
  'deploy/examples/*',
).map((path) => pageOf(path));

/** Each alert's section as a page of its own, with the path `FILE#ALERT`. */
export const alertSections = pages
  .filter(({ path }) => path.startsWith('docs/runbooks/'))
  .flatMap(({ path, text }) =>
    [...text.matchAll(/^## (PartnerIngest\w+)\n[^]*?(?=^## |$(?![^]))/gm)].map(
      ([section, alert = '']) => pageOf(`${path}#${alert}`, section),
    ),
  );

/** The findings of `check`, each with its page. */
export function faults(
  check: (page: Page) => readonly string[],
  of: readonly Page[] = pages,
): string[] {
  return of.flatMap((page) => check(page).map((fault) => `${page.path}: ${fault}`));
}
