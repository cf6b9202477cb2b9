/**
 * What test files need of the machine besides Node. `make test` has it all ready before the first
 * test; Jest leaves a file out, before it is loaded, when something it needs cannot be had, and the
 * closing lines say so.
 */
/* oxlint-disable node/no-process-env -- handed from `make` to Jest and to the closing lines */
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../tools/root.ts';

/** Each by what the text of a test file shows it with; the stores by its folder. */
const NEEDS = {
  'MongoDB and Redis': undefined,
  'MongoDB and Redis of our own': /deploy\/local\/stores\.ts'|openOwnWorld|faults\/play\.ts'/,
  Linux: /support\/crowd\.ts'/,
  openssl: /'openssl'|support\/(certificate|redis-sets)\.ts'/,
  curl: /testSample\('curl'/,
  'Python 3': /testSample\('Python'/,
  Java: /testSample\('Java'/,
  Prometheus: /local\/prometheus\.ts'/,
  schemathesis: /support\/schemathesis\.ts'/,
  Helm: /support\/(chart|cluster|keys-world)\.ts'|\.\/rules\.ts'/,
  Chromium: /support\/browser\.ts'/,
  'API server': /support\/(cluster|keys-world)\.ts'|TEST_KUBECONFIG/,
  'API server of our own': /startOwnApiServer/,
} as const;
const ON_STORES = /^test\/(integration|kubernetes|judges\/neighbour)/;
const FOLDERS = ['cmd', 'internal', 'deploy', 'test', 'tools'];
const NOT_OURS = /^test\/(e2e|mongodb)\/|node_modules/;

export type Need = keyof typeof NEEDS;
export const needs = Object.keys(NEEDS) as Need[];

/**
 * Why a need cannot be met; those that can are absent. `cluster` is for the tests of `make e2e`.
 */
export type Obstacles = Readonly<Partial<Record<Need | 'cluster', string>>>;

/** What this test file needs, by its path from the project's root and its text. */
export function needsOf(path: string, text: string): Need[] {
  return needs.filter((need) => NEEDS[need]?.test(text) ?? ON_STORES.test(path));
}

/** All test files but those in a cluster, by path from the project's root, with what they need. */
export function testFiles(): { readonly path: string; readonly needs: readonly Need[] }[] {
  return FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' }).map(
      (name) => `${folder}/${name}`,
    ),
  )
    .filter((path) => path.endsWith('.test.ts') && !NOT_OURS.test(path))
    .map((path) => ({ path, needs: needsOf(path, readFileSync(join(ROOT, path), 'utf8')) }));
}

/** What `prepare.ts` wrote for the run; a run that nobody prepared leaves nothing out. */
export function foundObstacles(): Obstacles {
  const file = process.env['TEST_OBSTACLES'] ?? '';
  return file === '' ? {} : (JSON.parse(readFileSync(file, 'utf8')) as Obstacles);
}

/** The test files that cannot run, with what they lack. */
export function leftOutFiles(
  obstacles: Obstacles,
): { readonly path: string; readonly lacks: readonly Need[] }[] {
  return testFiles()
    .map((file) => ({
      path: file.path,
      lacks: file.needs.filter((need) => obstacles[need] !== undefined),
    }))
    .filter(({ lacks }) => lacks.length > 0);
}
